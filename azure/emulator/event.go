package emulator

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"
)

// eventQueue is the scheduled events of one instance.
type eventQueue struct {
	incarnation int
	events      []object
}

// ScheduleEvent announces a platform event (Freeze, Reboot, Redeploy, Preempt or Terminate)
// to an instance through its metadata service, in notice from now, and returns its ID. It is
// only announced: nothing happens to the instance.
func (s *Server) ScheduleEvent(instanceID, eventType string, notice time.Duration) string {
	s.start()
	i, _ := s.Instance(instanceID)
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.events[key(instanceID)]
	if q == nil {
		q = &eventQueue{}
		s.events[key(instanceID)] = q
	}
	q.incarnation++
	id := identifier()
	q.events = append(q.events, object{"EventId": id, "EventType": eventType, "ResourceType": "VirtualMachine", "Resources": []any{i.Name},
		"EventStatus": "Scheduled", "NotBefore": s.Clock.Now().Add(notice).UTC().Format(http.TimeFormat), "Description": "",
		"EventSource": "Platform", "DurationInSeconds": -1})
	return id
}

func (g *guest) listEvents(w http.ResponseWriter, _ *http.Request, _ Instance) {
	g.s.mu.Lock()
	body := object{"DocumentIncarnation": 1, "Events": []any{}}
	if q := g.s.events[key(g.id)]; q != nil {
		body = object{"DocumentIncarnation": q.incarnation, "Events": array(clone(q.events)...)}
	}
	g.s.mu.Unlock()
	sendJSON(w, http.StatusOK, body)
}

// startEvents is the guest approving events: they leave the queue.
func (g *guest) startEvents(w http.ResponseWriter, r *http.Request, _ Instance) {
	var approval struct {
		StartRequests []struct {
			EventID string `json:"EventId"`
		}
	}
	if err := json.NewDecoder(r.Body).Decode(&approval); err != nil {
		sendJSON(w, http.StatusBadRequest, object{"error": "Bad request. " + err.Error()})
		return
	}
	g.s.mu.Lock()
	defer g.s.mu.Unlock()
	q := g.s.events[key(g.id)]
	for _, approved := range approval.StartRequests {
		if q == nil {
			break
		}
		var left []object
		for _, event := range q.events {
			if text(event, "EventId") != approved.EventID {
				left = append(left, event)
			}
		}
		if len(left) != len(q.events) {
			q.events, q.incarnation = left, q.incarnation+1
		}
	}
	w.WriteHeader(http.StatusOK)
}

func decimal(n int) string { return strconv.Itoa(n) }

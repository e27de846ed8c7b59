package boot

var (
	stampFields = []string{"activating", "activated", "deactivating", "deactivated"}
	unitFields  = append([]string{"id", "names", "first", "restarts", "after", "wants", "requires", "triggeredBy", "activeState", "result", "cpu", "remainsActive"}, stampFields...)
)

// units reads the list of units.
func (r *fastReader) units(into *[]Unit) bool {
	out := []Unit{}
	ok := r.list(func() bool {
		out = append(out, Unit{})
		return r.unit(&out[len(out)-1])
	})
	*into = out
	return ok
}

func (r *fastReader) unit(u *Unit) bool {
	return r.object(unitFields, func(field int) bool {
		switch unitFields[field] {
		case "id":
			return r.string(&u.ID)
		case "names":
			return r.strings(&u.Names)
		case "first":
			u.First = &Stamps{}
			return r.object(stampFields, func(i int) bool { return r.stamp(u.First, i) })
		case "restarts":
			n, ok := r.number()
			u.Restarts = int(n)
			return ok && int64(u.Restarts) == n
		case "after":
			return r.strings(&u.After)
		case "wants":
			return r.strings(&u.Wants)
		case "requires":
			return r.strings(&u.Requires)
		case "triggeredBy":
			return r.strings(&u.TriggeredBy)
		case "activeState":
			return r.string(&u.ActiveState)
		case "result":
			return r.string(&u.Result)
		case "cpu":
			return r.micros(&u.CPU)
		case "remainsActive":
			raw, ok := r.raw()
			u.RemainsActive = string(raw) == "true"
			return ok && (u.RemainsActive || string(raw) == "false")
		}
		return r.stamp(&u.Stamps, field-(len(unitFields)-len(stampFields)))
	})
}

func (r *fastReader) stamp(s *Stamps, field int) bool {
	return r.micros([]*Micros{&s.Activating, &s.Activated, &s.Deactivating, &s.Deactivated}[field])
}

package emulator

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"
)

// apiError is a refusal in the words of the service.
type apiError struct {
	Status  int
	Code    string
	Message string
}

func (e *apiError) Error() string { return e.Code + ": " + e.Message }

func refuse(code, format string, args ...any) *apiError {
	return &apiError{Status: http.StatusBadRequest, Code: code, Message: fmt.Sprintf(format, args...)}
}

// invalid is what Auto Scaling says of almost everything.
func invalid(format string, args ...any) *apiError { return refuse("ValidationError", format, args...) }

// namedList is a list in XML whose elements are not called item or member.
type namedList struct {
	name string
	of   []any
}

// Name spaces of the services' replies.
var nameSpaces = map[string]string{
	ec2: "http://ec2.amazonaws.com/doc/2016-11-15/", autoScaling: "http://autoscaling.amazonaws.com/doc/2011-01-01/",
	sts: "https://sts.amazonaws.com/doc/2011-06-15/",
}

// write answers a call in the format of its service.
func (c *call) write(w http.ResponseWriter, out object, err *apiError) {
	status, body := http.StatusOK, []byte(nil)
	if err != nil {
		status = err.Status
		c.code = err.Code
	}
	c.status = status
	media := "text/xml;charset=UTF-8"
	switch c.service {
	case ssm:
		media = "application/x-amz-json-1.1"
		body = c.inJSON(out, err)
	case ec2:
		body = c.inEC2(out, err)
	default:
		body = c.inQuery(out, err)
	}
	w.Header().Set("Content-Type", media)
	w.Header().Set("x-amzn-RequestId", c.requestID)
	w.WriteHeader(status)
	_, _ = w.Write(body) // the client is gone; nobody is left to tell
}

func (c *call) inJSON(out object, err *apiError) []byte {
	var body any = out
	if err != nil {
		body = object{"__type": err.Code, "message": err.Message}
	} else if out == nil {
		body = object{}
	}
	raw, fault := json.Marshal(unixTimes(body))
	if fault != nil {
		return []byte(`{"__type":"InternalServerError","message":"reply cannot be encoded"}`)
	}
	return raw
}

// unixTimes writes times as JSON 1.1 has them, in seconds.
func unixTimes(value any) any {
	switch v := value.(type) {
	case object:
		o := object{}
		for name, inner := range v {
			o[name] = unixTimes(inner)
		}
		return o
	case []any:
		return each(v, unixTimes)
	case time.Time:
		return float64(v.UnixMilli()) / 1000
	}
	return value
}

func (c *call) inEC2(out object, err *apiError) []byte {
	var b bytes.Buffer
	b.WriteString(xml.Header)
	if err != nil {
		element(&b, "Response", "item", object{"RequestID": c.requestID,
			"Errors": object{"Error": object{"Code": err.Code, "Message": err.Message}}})
		return b.Bytes()
	}
	body := maps.Clone(out)
	if body == nil {
		body = object{"return": true}
	}
	body["requestId"] = c.requestID
	root(&b, c.action+"Response", nameSpaces[ec2], "item", body)
	return b.Bytes()
}

func (c *call) inQuery(out object, err *apiError) []byte {
	var b bytes.Buffer
	if err != nil {
		kind := "Sender"
		if err.Status >= http.StatusInternalServerError {
			kind = "Receiver"
		}
		root(&b, "ErrorResponse", nameSpaces[c.service], "member", object{"RequestId": c.requestID,
			"Error": object{"Type": kind, "Code": err.Code, "Message": err.Message}})
		return b.Bytes()
	}
	body := object{"ResponseMetadata": object{"RequestId": c.requestID}}
	if out == nil {
		out = object{}
	}
	body[c.action+"Result"] = out
	root(&b, c.action+"Response", nameSpaces[c.service], "member", body)
	return b.Bytes()
}

func root(b *bytes.Buffer, name, space, item string, body object) {
	b.WriteString("<" + name + ` xmlns="` + space + `">`)
	contents(b, item, body)
	b.WriteString("</" + name + ">")
}

// element leaves out what is empty, except the value of a tag.
func element(b *bytes.Buffer, name, item string, value any) {
	if value == nil || value == "" && !strings.EqualFold(name, "value") {
		return
	}
	b.WriteString("<" + name + ">")
	contents(b, item, value)
	b.WriteString("</" + name + ">")
}

func contents(b *bytes.Buffer, item string, value any) {
	switch v := value.(type) {
	case object:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			element(b, name, item, v[name])
		}
	case []any:
		for _, inner := range v {
			element(b, item, item, inner)
		}
	case namedList:
		for _, inner := range v.of {
			element(b, v.name, item, inner)
		}
	case time.Time:
		b.WriteString(v.UTC().Format("2006-01-02T15:04:05.000Z"))
	default:
		_ = xml.EscapeText(b, fmt.Append(nil, v)) // a bytes.Buffer takes everything
	}
}

// lowered is a name as EC2 shows it.
func lowered(name string) string { return strings.ToLower(name[:1]) + name[1:] }

package notify

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode"

	"kamino.dev/kamino"
)

// statusError is what a receiver answered. A redirect is one: the text, and headers with keys, go to
// the configured address only.
type statusError int

func (e statusError) Error() string { return fmt.Sprintf("the receiver answered %d", int(e)) }

// generic posts to any address, as shoutrrr's service of the same name does without templates of
// the user: generic://HOST/PATH?template=json becomes a POST to https://HOST/PATH. Of the query,
// @NAME is a header, $NAME a field of the JSON; contenttype, disabletls, messagekey, method,
// template, title and titlekey are its settings (https://shoutrrr.nickfedor.com, Generic); what is
// left belongs to the address.
func generic(u *url.URL) (func(ctx context.Context, title, text string) error, error) {
	to, query := *u, u.Query()
	take := func(key, otherwise string) string {
		for name, values := range query {
			if strings.EqualFold(name, key) {
				delete(query, name)
				return values[0]
			}
		}
		return otherwise
	}
	plain := u.Scheme == "generic+http"
	switch strings.ToLower(take("disabletls", "no")) {
	case "yes", "true", "1":
		plain = true
	}
	to.Scheme = "https"
	if plain {
		to.Scheme = "http"
	}
	kind, template, method := take("contenttype", "application/json"), strings.ToLower(take("template", "")), strings.ToUpper(take("method", http.MethodPost))
	titleKey, messageKey, fixed := take("titlekey", "title"), take("messagekey", "message"), take("title", "")
	header, extra := http.Header{}, map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(query)) {
		if name, ok := strings.CutPrefix(key, "@"); ok && name != "" {
			header.Set(dashed(name), query.Get(key))
			delete(query, key)
		} else if name, ok := strings.CutPrefix(key, "$"); ok && name != "" {
			extra[name] = query.Get(key)
			delete(query, key)
		}
	}
	to.RawQuery = query.Encode()
	switch {
	case to.Host == "":
		return nil, kamino.WithHint(errors.New("the URL of the service generic names no host"), "generic://HOST/PATH?template=json")
	case template != "" && template != "json":
		return nil, kamino.WithHint(errors.New("the service generic has no such template"), "use template=json, or omit it for plain text")
	}
	client := &http.Client{Timeout: limit, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return func(ctx context.Context, title, text string) error {
		body := text
		if fixed != "" {
			title = fixed
		}
		if template == "json" {
			fields := maps.Clone(extra)
			fields[titleKey], fields[messageKey] = title, text
			encoded, err := json.Marshal(fields)
			if err != nil {
				return err
			}
			body = string(encoded)
		}
		req, err := http.NewRequestWithContext(ctx, method, to.String(), strings.NewReader(body))
		if err != nil {
			return err
		}
		if req.Header.Set("Content-Type", kind); template == "" {
			req.Header.Set("Content-Type", "text/plain")
		}
		maps.Copy(req.Header, header)
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		defer func() { _ = resp.Body.Close() }() // it was read
		_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<20))
		if resp.StatusCode >= http.StatusMultipleChoices {
			return statusError(resp.StatusCode)
		}
		return nil
	}, nil
}

// dashed makes apiKey api-Key.
func dashed(name string) string {
	var b strings.Builder
	last := '-'
	for _, c := range name {
		if unicode.IsUpper(c) && last != '-' {
			b.WriteByte('-')
		}
		b.WriteRune(c)
		last = c
	}
	return b.String()
}

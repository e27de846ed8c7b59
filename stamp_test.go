package kamino

import "testing"

func TestParseStamp(t *testing.T) {
	tests := map[string]string{
		"2026-11-12":                        "2026-11-12",
		"on 2026-11-12.":                    "2026-11-12",
		"2026-11-12T10:11:12Z":              "2026-11-12T10:11:12Z",
		"at 2026-11-12t10:11:12.5+05:30 ok": "2026-11-12T04:41:12Z",
		"first 2026-13-01 then 2026-12-01":  "2026-12-01",
		"2026-11-12T10:11:12":               "2026-11-12",
		"12026-11-123":                      "",
		"2026-02-30":                        "",
		"":                                  "",
		"2026/11/12":                        "",
	}
	for text, want := range tests {
		t.Run(text, func(t *testing.T) {
			got, err := ParseStamp(text)
			if (err != nil) != (want == "") || err == nil && got.String() != want {
				t.Errorf("parseStamp(%q) = %v, %v, want %q", text, got, err, want)
			}
		})
	}
}

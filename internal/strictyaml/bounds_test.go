package strictyaml

import (
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// fields returns a Pod with n unknown fields.
func fields(n int) string {
	var b strings.Builder
	b.WriteString(`{"apiVersion": "v1", "kind": "Pod"`)
	for i := range n {
		fmt.Fprintf(&b, `, "f%d": 1`, i)
	}
	return b.String() + "}"
}

// A document that is too large is refused before it is read.
func TestTooMuch(t *testing.T) {
	yaml := "apiVersion: v1\nkind: Pod\n"
	for name, tt := range map[string]struct{ text, want string }{
		"values": {fields(700_000), "holds 700002 values; at most 200000 are read"},
		"a list": {`{"items": [` + strings.Repeat(`{}, `, 350_000) + `{}]}`,
			"holds 700003 values; at most 200000 are read"},
		"nested": {`{"a": ` + strings.Repeat("[", 9_000) + strings.Repeat("]", 9_000) + "}", ""},
		"YAML": {yaml + strings.Repeat("a: b\n", 350_000),
			"is no valid JSON, and YAML of more than 1536 KiB is not read"},
		"YAML within": {yaml + "x: [" + strings.Repeat("a,", 10_000) + "]", ""},
		"YAML values": {yaml + "x: [" + strings.Repeat("a,", 200_000) + "]",
			"holds 200003 values"},
		"commas in a text": {`{"a": "` + strings.Repeat(`,{[\"`, 200_000) + `"}`, ""},
	} {
		_, err := Parse([]byte(tt.text))
		got := errorText(err)
		if (got == "") != (tt.want == "") || !strings.HasPrefix(got, tt.want) {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

// Only the first few messages are made; the others are counted.
func TestFirstMessages(t *testing.T) {
	d, err := Parse([]byte(fields(100_000)))
	if err != nil {
		t.Fatal(err)
	}
	got := Check[v1.Pod](d)
	if len(got.Unknown.First) != MaxMessages || got.Unknown.More != 100_000-MaxMessages {
		t.Errorf("%d messages, %d more", len(got.Unknown.First), got.Unknown.More)
	}
	text := got.Unknown.String()
	if !strings.HasPrefix(text, "f0: unknown field; ") || OneLine(text) != text ||
		!strings.Contains(text, "; and 999") {
		t.Errorf("in one line: %s", text)
	}
	few := Messages{First: []string{"a", "b"}}
	if few.String() != "a; b" || (Messages{}).String() != "" {
		t.Errorf("%q, %q", few, Messages{})
	}
}

// A duplicate key is reported in JSON as in YAML, and the last one counts.
func TestDuplicatesInJSON(t *testing.T) {
	d, err := Parse([]byte(
		`{"a": 1.50, "b": {"c": 1, "c": {"d": 2}}, "a": {"x": 1}, "a": {"y": 1}}`))
	if err != nil {
		t.Fatal(err)
	}
	if want := `duplicate field "b.c"; duplicate field "a"`; d.Duplicates != want {
		t.Errorf("Duplicates %q, want %q", d.Duplicates, want)
	}
	if want := `{"a":{"y":1},"b":{"c":{"d":2}}}`; string(d.JSON) != want {
		t.Errorf("JSON %s, want %s", d.JSON, want)
	}
}

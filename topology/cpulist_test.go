package topology

import (
	"strings"
	"testing"

	"k8s.io/utils/cpuset"
)

// Oversized lists are refused before they take memory; everything else is as in cpuset.
func TestParseCPUs(t *testing.T) {
	got, err := ParseCPUs("0-2,8,65535")
	if want := cpuset.New(0, 1, 2, 8, 65535); err != nil || !got.Equals(want) {
		t.Errorf("got %v, %v", got, err)
	}
	for text, want := range map[string]string{
		"0-4000000000":                "4000000000 is larger than 65535",
		"65536":                       "65536 is larger",
		"x,0-99999999":                "99999999 is larger",
		strings.Repeat("0-65535,", 9): "more than 262140 ids",
		"0-18446744073709551616":      "value out of range",
		"3-1":                         "invalid range",
		"a":                           "invalid syntax",
	} {
		if _, err := ParseCPUs(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.20q: got %v, want %s", text, err, want)
		}
	}
}

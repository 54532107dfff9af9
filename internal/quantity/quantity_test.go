package quantity

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]string{
		"2Gi": "2Gi", "1E": "1E", "1e3": "1e3", "100e-3": "100e-3", "1E6": "1E6", "1e+6": "1e+6",
		"1e99": "1e99", "": "", "x": "", "1e": "", "1e5e5": "",
		"1e100": "", "1e-100": "", "1e1000000000": "", "12345678901234567890e1000000000": "",
		" 1e1000000000": "", "1E99999999999999999999": "", "1e-1000000000": "",
		strings.Repeat("9", 65): "", "0." + strings.Repeat("0", 1<<20) + "1": "",
	} {
		q, err := Parse(text)
		switch {
		case (err == nil) != (want != ""):
			t.Errorf("%.30q: error %v", text, err)
		case err == nil && q.String() != want:
			t.Errorf("%q: %s, want %s", text, q.String(), want)
		}
	}
}

// Any name gives a positive page size or none.
func TestPageSize(t *testing.T) {
	for name, want := range map[v1.ResourceName]int64{
		"hugepages-2Mi": 2 << 20, "hugepages-1Gi": 1 << 30, "hugepages-64Ki": 64 << 10,
		"hugepages-1e100": 0, "hugepages-1e99": 0, "hugepages-1e1000000000": 0,
		"hugepages-": 0, "hugepages-0": 0, "hugepages--2Mi": 0, "hugepages-500m": 0,
		"hugepages-1.5": 0, "hugepages-1n": 0, "hugepages-16Ei": 0, "hugepages-2Pi": 0, "memory": 0,
	} {
		if got, ok := PageSize(name); ok != (want > 0) || ok && got != want {
			t.Errorf("%s: %d, %t, want %d", name, got, ok, want)
		}
	}
}

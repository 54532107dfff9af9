package kernel

import (
	"bytes"
	"strconv"

	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// parseNumber parses a decimal number between spaces; ok is false if there is none ("max").
func parseNumber(text []byte) (n uint64, ok bool) {
	for _, c := range bytes.TrimSpace(text) {
		if c < '0' || c > '9' {
			return 0, false
		}
		n, ok = n*10+uint64(c-'0'), true
	}
	return n, ok
}

// values maps the keys of a file to the variables of their numbers. Missing keys change nothing.
type values map[string]*uint64

// take stores a number if its key is wanted.
func (v values) take(key, text []byte) {
	if to := v[string(key)]; to != nil {
		if n, ok := parseNumber(text); ok {
			*to = n
		}
	}
}

// pairs reads the numbers of a file with lines "key value".
func (v values) pairs(text []byte) {
	for line := range bytes.Lines(text) {
		key, value, _ := bytes.Cut(line, []byte{' '})
		v.take(key, value)
	}
}

// parsePressure parses lines "some avg10=0.00 avg60=0.00 avg300=0.00 total=0"
// (Documentation/accounting/psi.rst). It returns nil if there are none. Microseconds become
// nanoseconds. Full is zero if the kernel has no line "full" for the resource.
func parsePressure(text []byte) *statsapi.PSIStats {
	var out *statsapi.PSIStats
	for line := range bytes.Lines(text) {
		fields := bytes.Fields(line)
		if len(fields) == 0 {
			continue
		}
		if out == nil {
			out = &statsapi.PSIStats{}
		}
		switch string(fields[0]) {
		case "some":
			out.Some = pressureLine(fields[1:])
		case "full":
			out.Full = pressureLine(fields[1:])
		}
	}
	return out
}

func pressureLine(fields [][]byte) (d statsapi.PSIData) {
	for _, f := range fields {
		key, value, _ := bytes.Cut(f, []byte{'='})
		share, _ := strconv.ParseFloat(string(value), 64)
		switch string(key) {
		case "avg10":
			d.Avg10 = share
		case "avg60":
			d.Avg60 = share
		case "avg300":
			d.Avg300 = share
		case "total":
			micros, _ := parseNumber(value)
			d.Total = micros * 1000
		}
	}
	return d
}

package config

import (
	"strings"
	"testing"
)

// Only memory is kept from lower classes, in percent.
func TestParseQOSReserved(t *testing.T) {
	for text, want := range map[string]int64{"0%": 0, "50%": 50, "100%": 100} {
		got, err := ParseQOSReserved(map[string]string{"memory": text})
		if err != nil || got != want {
			t.Errorf("%s: %d, %v", text, got, err)
		}
	}
	if got, err := ParseQOSReserved(nil); got != 0 || err != nil {
		t.Errorf("nothing: %d, %v", got, err)
	}
	for _, bad := range []string{"", "5", "%", "-1%", "101%", "1.5%"} {
		if _, err := ParseQOSReserved(map[string]string{"memory": bad}); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

// A quantity with more digits than memory can hold is refused before any arithmetic.
func TestQuantitiesWithoutEnd(t *testing.T) {
	const digits = "12345678901234567890e1000000000"
	for name, read := range map[string]func(string) error{
		"kubeReserved": func(text string) error {
			_, err := ParseReserved(map[string]string{"memory": text})
			return err
		},
		"evictionHard": func(text string) error {
			_, _, err := ParseThreshold(text)
			return err
		},
		"--reserved-memory": func(text string) error {
			_, err := parseReservation("0:memory=" + text)
			return err
		},
	} {
		if err := read("1Gi"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := read(digits); err == nil || !strings.Contains(err.Error(), digits) {
			t.Errorf("%s: error %v, want one that names %s", name, err, digits)
		}
	}
}

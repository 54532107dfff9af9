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

// A percentage is as exact as the kubelet's: the amounts that follow from it are the same, to the byte.
func TestPercentages(t *testing.T) {
	for text, want := range map[string]int64{
		"10%": 100_000_001_490, "15%": 150_000_005_960, "5%": 50_000_000_745, "70%": 699_999_988_079,
		"12.5%": 125_000_000_000, "0%": 0, "100%": 1_000_000_000_000,
	} {
		got, on, err := ParseThreshold(text)
		if err != nil || got.Of(1_000_000_000_000) != want || on != (text != "0%" && text != "100%") {
			t.Errorf("%s: %d, %t, %v; want %d", text, got.Of(1_000_000_000_000), on, err, want)
		}
	}
	for _, bad := range []string{"%", "-1%", "100.1%", "NaN%", "x%"} {
		if _, _, err := ParseThreshold(bad); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

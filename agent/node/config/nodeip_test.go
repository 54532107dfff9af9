package config

import "testing"

// A cloud controller manager chooses freely if no address, or only a family, is asked for.
func TestProvidedIP(t *testing.T) {
	for asked, want := range map[string]string{
		"": "", "0.0.0.0": "", "::": "", "10.0.0.1": "10.0.0.1",
		"10.0.0.1,fd00::1": "10.0.0.1,fd00::1",
	} {
		c := Config{Options: Options{Node: NodeOptions{IP: asked}}}
		if got := c.ProvidedIP(); got != want {
			t.Errorf("--node-ip=%q: %q, want %q", asked, got, want)
		}
	}
}

package config

import (
	"strings"
	"testing"
)

// Credential providers need both flags: the configuration and the directory of programs.
func TestCredentialProviderFlags(t *testing.T) {
	const file, dir = "--image-credential-provider-config", "--image-credential-provider-bin-dir"
	for _, c := range []struct{ given, needs string }{{file, dir}, {dir, file}} {
		_, err := load(t, t.TempDir(), c.given+"=/x")
		if err == nil || !strings.Contains(err.Error(), c.given) ||
			!strings.Contains(err.Error(), "needs "+c.needs) {
			t.Errorf("%s alone: %v", c.given, err)
		}
	}
	got := mustLoad(t, t.TempDir(), file+"=/x", dir+"=/y").Unhonoured()
	if len(got) > 0 {
		t.Errorf("without effect: %q", got)
	}
}

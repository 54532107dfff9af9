package dradriver

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/spf13/pflag"
)

// A driver reads claims as fast as the pods of a node start: client-go's default of 5 per second
// would have 100 pods wait for 20 seconds.
func TestLimit(t *testing.T) {
	file := filepath.Join(t.TempDir(), "kubeconfig")
	text := `{clusters: [{name: a, cluster: {server: "http://127.0.0.1:1"}}],
 contexts: [{name: a, context: {cluster: a}}], current-context: a}`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	set := pflag.NewFlagSet("test", pflag.ContinueOnError)
	f := AddFlags(set, "toys", driverName, "")
	if err := set.Parse([]string{"--dra", "--kubeconfig=" + file, "--node-name=node"}); err != nil {
		t.Fatal(err)
	}
	cfg, err := f.Config("numalet-toys", func(string) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	limit := cfg.Client.ResourceV1().RESTClient().GetRateLimiter()
	for n := range 100 {
		if !limit.TryAccept() {
			t.Fatalf("request %d has to wait", n)
		}
	}
}

package report

import (
	"bytes"
	"encoding/json"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/numalet/numalet/cmd/numalet-lab/rig"
	"github.com/numalet/numalet/internal/goldentest"
	"github.com/numalet/numalet/topology/topologytest"
)

// sample is a small comparison.
func sample(t *testing.T, wait time.Duration) rig.Report {
	t.Helper()
	return sampleOf(t, "playground", "training", wait)
}

// sampleOf compares the usual policies on the machine.
func sampleOf(t *testing.T, machine, mixName string, wait time.Duration) rig.Report {
	t.Helper()
	return comparison(t, machine, mixName, rig.DefaultPolicies+",cpu-none", wait)
}

// comparison is a small one. Its clock ticks evenly, so its times are always the same.
func comparison(t *testing.T, machine, mixName, words string, wait time.Duration) rig.Report {
	t.Helper()
	m := topologytest.Fixture(t, machine)
	site, err := rig.NewSite(rig.SiteConfig{Machine: m})
	if err != nil {
		t.Fatal(err)
	}
	mix, err := rig.OpenMix(mixName)
	if err != nil {
		t.Fatal(err)
	}
	seed := uint64(1)
	stream, err := site.Generate(mix, rig.Draw{Pods: 200, Seed: seed})
	if err != nil {
		t.Fatal(err)
	}
	policies, err := rig.ParsePolicies(words)
	if err != nil {
		t.Fatal(err)
	}
	r := rig.Report{
		Machine:  site.Describe("fixture:" + machine),
		Workload: stream.Describe(mix.Name, mix.About, wait),
	}
	r.Workload.Seed = &seed
	for _, p := range policies {
		now := time.Duration(0)
		o, err := rig.Run(t.Context(), site, p, stream, rig.Options{
			Wait: wait, Clock: func() time.Duration { now += 40 * time.Microsecond; return now },
		})
		if err != nil {
			t.Fatal(err)
		}
		r.Policies = append(r.Policies, o)
	}
	return r
}

func TestText(t *testing.T) {
	pools := comparison(t, "playground", "pooled", "restricted+pod/container+pools,restricted+pod", 0)
	pools.Policies[0].Settings.From = "new.yaml"
	for name, r := range map[string]rig.Report{
		"at-once": sample(t, 0), "wait": sample(t, 4*time.Hour),
		"claims":  sampleOf(t, "dgx-h100", "testdata/claims.yaml", 0),
		"resizes": sampleOf(t, "playground", "testdata/resizes.yaml", 0),
		"pools":   pools,
	} {
		var got bytes.Buffer
		if err := WriteText(&got, r); err != nil {
			t.Fatal(err)
		}
		goldentest.Compare(t, "testdata/"+name+".txt", got.String())
		for line := range strings.Lines(got.String()) {
			if len(line) > 101 {
				t.Errorf("wider than 100 columns: %s", line)
			}
		}
	}
}

// The page is self-contained and holds the report.
func TestHTML(t *testing.T) {
	r := sample(t, time.Hour)
	r.Machine.Name = `</script><script src="http://example.com/x.js"></script>`
	r.Policies[0].Policy = `<img src="http://example.com/x.png">`
	r.Version, r.Command, r.Interrupted = "v1.2.3", "numalet rig --seed 1", true
	r.Policies[1].Settings.From = "today.yaml"
	var out bytes.Buffer
	if err := WriteHTML(&out, r); err != nil {
		t.Fatal(err)
	}
	page := out.String()

	scripts := regexp.MustCompile(`(?s)<script([^>]*)>(.*?)</script>`)
	found := scripts.FindAllStringSubmatch(page, -1)
	if len(found) != 3 || !strings.HasSuffix(strings.TrimSpace(page), "</html>") {
		t.Fatalf("%d scripts in the page, want 3", len(found))
	}
	var again rig.Report
	if err := json.Unmarshal([]byte(found[0][2]), &again); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(again, r) {
		t.Error("the report in the page is another one")
	}
	if !strings.Contains(found[1][2], "Chart.js v4.") ||
		strings.Contains(page, "sourceMappingURL") {
		t.Error("the chart library is not as it should be")
	}
	for _, s := range found {
		if strings.Contains(s[1], "src") {
			t.Errorf("a script from elsewhere: %s", s[1])
		}
	}
	if strings.Contains(found[2][2], "http") ||
		regexp.MustCompile(`fetch|import|XMLHttp`).MatchString(found[2][2]) {
		t.Error("our script asks for something")
	}
	markup := scripts.ReplaceAllString(page, "")
	for _, outside := range []string{
		`(?i)<(link|iframe|img|object|embed|base|audio|video|source)\b`,
		`(?i)\b(src|href|srcset|action)\s*=\s*["']?https?:`,
		`(?i)url\(`, `(?i)@import`,
	} {
		if hit := regexp.MustCompile(outside).FindString(markup); hit != "" {
			t.Errorf("the page needs something beside itself: %s", hit)
		}
	}
	for _, want := range []string{
		"Policies side by side", "What the words mean", "&lt;img src=", "Rejected pods, by reason",
		"numalet v1.2.3", "<code>numalet rig --seed 1</code>", "INTERRUPTED", "seed 1",
		"best-effort, scope container", "read from", "Copyright (c)", "prefers-color-scheme: dark",
		`<html lang="en">`,
	} {
		if !strings.Contains(markup, want) {
			t.Errorf("no %q in the page", want)
		}
	}
}

// A report of one policy without devices, as a trace on a laptop gives.
func TestBareReport(t *testing.T) {
	r := sample(t, 0)
	r.Policies, r.Machine.Devices, r.Workload.Seed = r.Policies[:1], nil, nil
	r.Policies[0].Timing, r.Policies[0].Placement = nil, rig.Placement{}
	var text, page bytes.Buffer
	if err := WriteText(&text, r); err != nil {
		t.Fatal(err)
	}
	if err := WriteHTML(&page, r); err != nil {
		t.Fatal(err)
	}
	for _, absent := range []string{"P99", "seed", "In short"} {
		if strings.Contains(text.String(), absent) || strings.Contains(page.String(), ">"+absent) {
			t.Errorf("%q is in the report", absent)
		}
	}
}

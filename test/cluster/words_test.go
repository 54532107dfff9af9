package cluster_test

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/numalet/numalet/internal/goldentest"
	"github.com/numalet/numalet/test/harness"
)

// spoken has the text of commands during a failure, by the failure's name.
type spoken map[string]string

// chance are events that come or not: who pulls the image, and when scheduler and agent know of devices
// and claims.
var chance = regexp.MustCompile(` Pull(ing|ed) | FailedScheduling | WaitingForResourceClaim `)

// add adds what a command printed, without what differs from run to run: what nameless leaves, chance, and
// the order of events.
func (w spoken) add(name, command, text string, nameless func(string) string) {
	var lines []string
	events := -1 // where they begin
	for line := range strings.Lines(text) {
		if chance.MatchString(line) {
			continue
		}
		lines = append(lines, nameless(strings.TrimRight(line, " \n"))+"\n")
		if strings.HasPrefix(line, "  ----  ") && events < 0 {
			events = len(lines)
		}
	}
	if events >= 0 {
		slices.Sort(lines[events:])
	}
	text = strings.Join(lines, "")
	for _, r := range []struct{ like, to string }{
		{` \(x\d+ over [^)]*\)`, ""}, {`; it is tried again in \w+`, ""},
		{`\b(\d+(h|m|s|ms))+\b`, "T"}, {`\b\d+ times`, "N times"},
		{`\b127\.\d+\.\d+\.\d+|\b10\.\d+\.\d+\.\d+`, "IP"}, {` {2,}`, "  "},
		{`\w{3}, \d\d \w{3} \d{4} [\d:]+ [+-]\d{4}`, "TIME"},
	} {
		text = regexp.MustCompile(r.like).ReplaceAllString(text, r.to)
	}
	w[name] += "$ " + command + "\n" + text
}

// compare compares the words with the files in a folder of testdata.
func (w spoken) compare(t *testing.T, folder string) {
	t.Helper()
	for name, text := range w {
		goldentest.Compare(t, filepath.Join("testdata", folder, name+".txt"), text)
	}
}

// nameless puts general words in the place of names and of what is of a run; names are pairs.
func nameless(text, node string, names ...string) string {
	for i := 0; i < len(names); i += 2 {
		if names[i] != "" {
			text = strings.ReplaceAll(text, names[i], names[i+1])
		}
	}
	text = regexp.MustCompile(`\b`+regexp.QuoteMeta(node)+`\b`).ReplaceAllString(text, "NODE")
	for _, r := range []struct{ like, to string }{
		{`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`, "UID"},
		{`\b(csi-)?[0-9a-f]{64}\b`, "${1}HASH"}, {`/dev/loop\d+|/loop\d+`, "LOOP"},
		{`eyJ[\w-]+\.[\w-]+\.[\w-]+`, "TOKEN"}, {`20\d\d-\d\d-\d\dT[\d:]+Z`, "TIME"},
	} {
		text = regexp.MustCompile(r.like).ReplaceAllString(text, r.to)
	}
	return text
}

// explained returns what "numalet explain" prints about a pod, with whole lines.
func explained(kubeconfig, node, pod string) (string, error) {
	binary, err := harness.Binary()
	if err != nil {
		return "", err
	}
	out, err := exec.Command(binary, "explain", pod, "--node="+node, "--kubeconfig="+kubeconfig).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("explain %s: %w: %s", pod, err, out)
	}
	return regexp.MustCompile(`\n {4}`).ReplaceAllString(string(out), " "), err
}

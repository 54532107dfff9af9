package provider

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-base/metrics"
)

// plugin is a shell script that records its input and prints the file answer.
const plugin = `#!/bin/sh
cat >> "$0.asked"
echo >> "$0.asked"
echo "$0.err" >&2
cat "$0.answer"
`

// node has one provider, p, with additional lines of configuration.
func node(t *testing.T, accounts Accounts, program, more string) (p *Providers, dir string) {
	t.Helper()
	dir = t.TempDir()
	write(t, dir, "p", program, 0o755)
	write(t, dir, "config.yaml", config(more), 0o644)
	p, err := Open(Config{File: filepath.Join(dir, "config.yaml"), Dir: dir, Accounts: accounts,
		Registry: metrics.NewKubeRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	return p, dir
}

// TestRunsAreMeasured: runs are counted, answers from the cache are not.
func TestRunsAreMeasured(t *testing.T) {
	dir, registry := t.TempDir(), metrics.NewKubeRegistry()
	write(t, dir, "p", "#!/bin/sh\ncat \"$0.answer\"\n", 0o755)
	write(t, dir, "config.yaml", config(""), 0o644)
	p, err := Open(Config{File: filepath.Join(dir, "config.yaml"), Dir: dir, Registry: registry})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := logins(t, p, &v1.Pod{}, "x.reg.test/a"); err == nil {
		t.Error("a program that fails gave logins")
	}
	answers(t, dir, auth+`,"cacheKeyType":"Image"`)
	for range 2 {
		if _, err := logins(t, p, &v1.Pod{}, "x.reg.test/a"); err != nil {
			t.Fatal(err)
		}
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range families {
		one := f.GetMetric()[0]
		got = append(got, fmt.Sprintf("%s %s=%s %d", f.GetName(), one.GetLabel()[0].GetName(),
			one.GetLabel()[0].GetValue(), int(one.GetGauge().GetValue()+
				one.GetCounter().GetValue())+int(one.GetHistogram().GetSampleCount())))
	}
	text := config("")
	size := binary.BigEndian.AppendUint64(nil, uint64(len(text)))
	want := []string{
		fmt.Sprintf("kubelet_credential_provider_config_info hash=sha256:%x 1",
			sha256.Sum256(append(size, text...))),
		"kubelet_credential_provider_plugin_duration plugin_name=p 2",
		"kubelet_credential_provider_plugin_errors_total plugin_name=p 1",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func config(more string) string {
	return `{apiVersion: kubelet.config.k8s.io/v1, kind: CredentialProviderConfig, providers: [
{name: p, apiVersion: credentialprovider.kubelet.k8s.io/v1, matchImages: ["*.reg.test", "reg.test/a"],
defaultCacheDuration: 1h` + more + `}]}`
}

func write(t *testing.T, dir, name, text string, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

func answers(t *testing.T, dir, more string) {
	t.Helper()
	write(t, dir, "p.answer", `{"kind":"CredentialProviderResponse",`+
		`"apiVersion":"credentialprovider.kubelet.k8s.io/v1",`+more+`}`, 0o644)
}

const auth = `"auth":{"*.reg.test":{"username":"u","password":"secret"}}`

// asked returns the plugin's inputs since the last call.
func asked(t *testing.T, dir string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "p.asked"))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	_ = os.Remove(filepath.Join(dir, "p.asked"))
	return strings.Fields(string(text))
}

// logins formats the places and users of the answer.
func logins(t *testing.T, p *Providers, pod *v1.Pod, image string) (out string, err error) {
	t.Helper()
	groups, err := p.Logins(t.Context(), pod, image)
	for _, g := range groups {
		for _, l := range g {
			out += l.Place + "=" + l.Auth.Username + ":" + l.Auth.Password + l.Holder.Name + ";"
		}
	}
	return out, err
}

// TestAnswers: a provider is asked about matching images, and its answer is cached for what it
// covers and as long as it says.
func TestAnswers(t *testing.T) {
	const one, other, far = "x.reg.test/a", "x.reg.test/b", "y.reg.test/a"
	for name, c := range map[string]struct {
		answer string
		calls  int // for one, one again, other, far
	}{
		"by image":                {`"cacheKeyType":"Image",` + auth, 3},
		"by registry":             {`"cacheKeyType":"Registry",` + auth, 2},
		"for all":                 {`"cacheKeyType":"Global",` + auth, 1},
		"not kept":                {`"cacheKeyType":"Global","cacheDuration":"0s",` + auth, 4},
		"nothing for it is known": {`"cacheKeyType":"Image"`, 3},
	} {
		p, dir := node(t, nil, plugin, "")
		answers(t, dir, c.answer)
		for range 1 {
			for _, image := range []string{one, one, other, far} {
				want := "*.reg.test=u:secret;"
				if !strings.Contains(c.answer, "auth") {
					want = ""
				}
				if got, err := logins(t, p, &v1.Pod{}, image); got != want || err != nil {
					t.Errorf("%s: %s has %q, %v", name, image, got, err)
				}
			}
		}
		if got, err := logins(t, p, &v1.Pod{}, "elsewhere.test/a"); got != "" || err != nil {
			t.Errorf("%s: an image that is not its own: %q, %v", name, got, err)
		}
		got := asked(t, dir)
		if len(got) != c.calls {
			t.Errorf("%s: asked %d times, want %d: %q", name, len(got), c.calls, got)
		}
		want := `{"kind":"CredentialProviderRequest",` +
			`"apiVersion":"credentialprovider.kubelet.k8s.io/v1","image":"x.reg.test/a"}`
		if got[0] != want {
			t.Errorf("%s: asked %s, want %s", name, got[0], want)
		}
	}
}

// TestBadAnswers: errors explain what is wrong with a provider, without the content of its answer.
func TestBadAnswers(t *testing.T) {
	const ok = `{"kind":"CredentialProviderResponse","apiVersion":` +
		`"credentialprovider.kubelet.k8s.io/v1","cacheKeyType":`
	for name, c := range map[string]struct{ program, want string }{
		"it fails":         {"#!/bin/sh\necho no login >&2; exit 3", "exit status 3: no login"},
		"no JSON":          {"#!/bin/sh\necho password=secret", "not the JSON of a"},
		"another kind":     {"#!/bin/sh\necho '{}'", `answered with a "" of ""`},
		"no kind of key":   {"#!/bin/sh\necho '" + ok + `"All"}'`, `cacheKeyType "All" is none of`},
		"endless":          {"#!/bin/sh\nhead -c 2000000 /dev/zero", "more than 1048576 bytes"},
		"endless on error": {"#!/bin/sh\nhead -c 2000000 /dev/zero >&2; exit 1", "exit status 1"},
	} {
		p, _ := node(t, nil, c.program, "")
		got, err := logins(t, p, &v1.Pod{}, "x.reg.test/a")
		if got != "" || err == nil || !strings.Contains(err.Error(), c.want) ||
			strings.Contains(err.Error(), "secret") || len(err.Error()) > 1000 ||
			!strings.HasPrefix(err.Error(), "credential provider p: ") {
			t.Errorf("%s: %q, %v; want %s", name, got, err, c.want)
		}
	}
}

// TestHang: a caller may give up on a provider that hangs. Callers with the same question share one
// call.
func TestHang(t *testing.T) {
	p, dir := node(t, nil, "#!/bin/sh\ncat >> \"$0.asked\"; echo >> \"$0.asked\"\n"+
		"while [ ! -e \"$0.go\" ]; do sleep 0.05; done\ncat \"$0.answer\"", "")
	answers(t, dir, `"cacheKeyType":"Image",`+auth)
	ctx, giveUp := context.WithCancel(t.Context())
	var all sync.WaitGroup
	all.Go(func() {
		if _, err := p.Logins(ctx, &v1.Pod{}, "x.reg.test/a"); err == nil {
			t.Error("it has an answer")
		}
	})
	giveUp()
	all.Wait()
	for range 4 {
		all.Go(func() {
			if groups, err := p.Logins(t.Context(), &v1.Pod{}, "x.reg.test/a"); err != nil ||
				len(groups) != 1 || len(groups[0]) != 1 {
				t.Errorf("%v, %v", groups, err)
			}
		})
	}
	time.Sleep(100 * time.Millisecond) // so that some of them wait
	write(t, dir, "p.go", "", 0o644)
	all.Wait()
	if got := asked(t, dir); len(got) != 1 {
		t.Errorf("asked %d times", len(got))
	}
}

// TestEnd: a program that exceeds its deadline is killed together with its children.
func TestEnd(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "p", "#!/bin/sh\nsleep 1000 & echo $! > \"$0.child\"\nwait", 0o755)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	measured, err := register(nil, "")
	if err != nil {
		t.Fatal(err)
	}
	_, err = program{path: filepath.Join(dir, "p"), runs: measured}.ask(ctx, asker{}.request)
	if err == nil || !strings.Contains(err.Error(), "did not answer in time") {
		t.Errorf("error %v", err)
	}
	child, err := os.ReadFile(filepath.Join(dir, "p.child"))
	if err != nil {
		t.Skip("it was killed before it had started anything")
	}
	stat := filepath.Join("/proc", strings.TrimSpace(string(child)), "stat")
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		text, err := os.ReadFile(stat)
		if err != nil || strings.Contains(string(text), ") Z ") {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("what it has started runs: %s", text)
		}
	}
}

// accounts has one service account for each pod, and numbered tokens.
type accounts struct{ tokens int }

func (a *accounts) ServiceAccount(_ context.Context, pod *v1.Pod) (*v1.ServiceAccount, error) {
	return &v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{
		Namespace: "n", Name: pod.Spec.ServiceAccountName, UID: "uid",
		Annotations: map[string]string{"role": "r1", "other": "x"},
	}}, nil
}

func (a *accounts) Token(_ context.Context, _ *v1.Pod, want *v1.ServiceAccountTokenProjection) (
	[]byte, time.Time, error) {
	a.tokens++
	return fmt.Appendf(nil, "token%d-%s", a.tokens, want.Audience), time.Time{}, nil
}

// TestServiceAccounts: a provider gets the requested token and annotations of the pod's service
// account. Its answers are valid only for that account, or for that token.
func TestServiceAccounts(t *testing.T) {
	attributes := func(cache, require, keys string) string {
		return ", tokenAttributes: {serviceAccountTokenAudience: aud, cacheType: " + cache +
			", requireServiceAccount: " + require + keys + "}"
	}
	pod := func(account string) *v1.Pod {
		return &v1.Pod{Spec: v1.PodSpec{ServiceAccountName: account}}
	}
	const image = "x.reg.test/a"
	global := `"cacheKeyType":"Global",` + auth

	p, dir := node(t, &accounts{}, plugin, attributes("ServiceAccount", "true",
		", requiredServiceAccountAnnotationKeys: [role]"))
	answers(t, dir, global)
	for _, account := range []string{"robot", "robot", "other", ""} {
		got, err := logins(t, p, pod(account), image)
		want := "*.reg.test=u:secret" + account + ";"
		if account == "" {
			want = ""
		}
		if got != want || err != nil {
			t.Errorf("account %q: %q, %v; want %q", account, got, err, want)
		}
	}
	got := asked(t, dir)
	if len(got) != 2 || !strings.Contains(got[0], `"serviceAccountToken":"token1-aud",`+
		`"serviceAccountAnnotations":{"role":"r1"}`) {
		t.Errorf("asked %q", got)
	}
	answers(t, dir, `"cacheKeyType":"Global","auth":{"x":{"password":"token5-aud"}}`)
	_, err := logins(t, p, pod("third"), image) // the fourth token
	if err != nil {
		t.Error(err)
	}
	answers(t, dir, `"cacheKeyType":"Global","auth":{"x":{"password":"token5-aud"}}`)
	if _, err = logins(t, p, pod("fourth"), image); err == nil ||
		!strings.Contains(err.Error(), "service account token as the password") {
		t.Errorf("a token as the password: %v", err)
	}

	p, dir = node(t, &accounts{}, plugin, attributes("Token", "false", ""))
	answers(t, dir, global)
	for _, account := range []string{"robot", "robot", "", ""} {
		if got, err := logins(t, p, pod(account), image); got != "*.reg.test=u:secret"+account+";" {
			t.Errorf("account %q: %q, %v", account, got, err)
		}
	}
	if got := asked(t, dir); len(got) != 3 || strings.Contains(got[2], "serviceAccount") {
		t.Errorf("asked %q", got)
	}

	p, _ = node(t, &accounts{}, plugin, attributes("Token", "true",
		", requiredServiceAccountAnnotationKeys: [none]"))
	if _, err := logins(t, p, pod("robot"), image); err == nil ||
		!strings.Contains(err.Error(), "service account robot has no annotation none") {
		t.Errorf("a missing annotation: %v", err)
	}
}

// TestConfig: errors in a configuration name the provider and say what to write.
func TestConfig(t *testing.T) {
	good := config("")
	for name, c := range map[string]struct{ text, want string }{
		"good":            {good, ""},
		"unknown field":   {config(", what: 1"), `unknown field`},
		"another kind":    {"{apiVersion: v1, kind: Pod}", "it is a Pod of v1; write kind: Cred"},
		"none":            {"{apiVersion: kubelet.config.k8s.io/v1, kind: CredentialProviderConfig}", "no providers"},
		"a path":          {strings.Replace(good, "name: p", "name: ../p", 1), "without a path"},
		"no images":       {strings.Replace(good, `"*.reg.test", "reg.test/a"`, "", 1), "matchImages must"},
		"no pattern":      {strings.Replace(good, `"reg.test/a"`, `"[a"`, 1), `"[a" is not a pattern`},
		"no duration":     {strings.Replace(good, "defaultCacheDuration: 1h", "", 1), "defaultCacheDuration must"},
		"another version": {strings.Replace(good, "io/v1, match", "io/v3, match", 1), "apiVersion"},
		"no audience": {config(", tokenAttributes: {cacheType: X, requireServiceAccount: false, " +
			"requiredServiceAccountAnnotationKeys: [a, a]}"),
			"serviceAccountTokenAudience must be given\nprovider 1, \"p\": tokenAttributes.cacheType"},
		"no program": {strings.Replace(good, "name: p", "name: q", 1), "put its program into"},
	} {
		dir := t.TempDir()
		write(t, dir, "p", plugin, 0o755)
		write(t, dir, "config.yaml", c.text, 0o644)
		_, err := Open(Config{File: filepath.Join(dir, "config.yaml"), Dir: dir})
		if c.want == "" && err != nil ||
			c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "d"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"p", "q"} {
		write(t, dir, name, plugin, 0o755)
	}
	write(t, dir, "d/2.yml", good, 0o644)
	write(t, dir, "d/1.json", strings.Replace(good, "name: p", "name: q", 1), 0o644)
	write(t, dir, "d/0.txt", "not this", 0o644)
	all, err := Open(Config{File: filepath.Join(dir, "d"), Dir: dir})
	if err != nil || len(all.all) != 2 || all.all[0].Name != "q" {
		t.Errorf("a directory: %v", err)
	}
	write(t, dir, "d/3.yaml", good, 0o644)
	if _, err := Open(Config{File: filepath.Join(dir, "d"), Dir: dir}); err == nil ||
		!strings.Contains(err.Error(), `provider 3, "p": its name is given twice`) {
		t.Errorf("twice: %v", err)
	}
}

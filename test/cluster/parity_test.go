package cluster_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/numalet/numalet/cmd/numalet-lab/crisim"
	"github.com/numalet/numalet/internal/podtest"
	"github.com/numalet/numalet/test/cluster/rig"
	"github.com/numalet/numalet/test/harness"
)

// TestParity: for the same pods, numalet tells the runtime and the API server the same as the stock
// kubelet. Each variant is in a pod of its own, and NUMALET_PARITY_PODS further pods have several
// random variants; NUMALET_PARITY_SEED draws others. NUMALET_PARITY_NAMES is a regular expression for
// the names of the pods to run.
func TestParity(t *testing.T) {
	seed := harness.Number(t, "NUMALET_PARITY_SEED", 1795356351761480071)
	several := harness.Number(t, "NUMALET_PARITY_PODS", 60)
	port, servers := newProbeServers(t, len(agents))
	var sides []*side
	for i, agent := range agents {
		s := newSideWith(t, agent, gatesOn())
		s.answers = servers[i]
		s.taint()
		sides = append(sides, s)
	}
	ask := asking{port, sides[0].serveRelay(t, servers), sides[0].serveHealth(t)}
	variants := simVariants(ask)
	pods := slices.Concat(eachVariant(slices.Concat(ask.gatedVariants(), variants)),
		severalVariants(rand.New(rand.NewPCG(seed, 0)), variants, int(several)))
	names, err := regexp.Compile(os.Getenv("NUMALET_PARITY_NAMES"))
	if err != nil {
		t.Fatal(err)
	}
	pods = slices.DeleteFunc(pods, func(p *v1.Pod) bool { return hangs(p) || !names.MatchString(p.Name) })
	for some := range slices.Chunk(pods, atOnce) {
		compare(t, sides, some)
	}
	hookOver2(t, sides[0], ask)
	startsSoon(t, sides)
}

// simVariants have an effect on the simulated runtime.
func simVariants(ask asking) []variant {
	return slices.Concat(securityVariants(), lifeVariants(), contentVariants(), furtherVariants(),
		ask.probeVariants(), ask.hookVariants(), restartVariants(), addedVariants(), pullVariants(),
		killedVariants())
}

// atOnce bounds the pods at the same time: neither node runs more than 110.
const atOnce = 40

// firstProbes bounds the time until each container was probed, or has reached the state of its
// variants.
const firstProbes = 3 * time.Second

// variantsNote is the annotation with a pod's variants.
const variantsNote = "example.com/variants"

// eachVariant returns a pod for each variant.
func eachVariant(all []variant) (pods []*v1.Pod) {
	for _, one := range all {
		pod := ordinaryPod(one.name)
		one.set(pod)
		pods = append(pods, pod)
	}
	return pods
}

// severalVariants returns pods with some random variants each.
func severalVariants(random *rand.Rand, all []variant, several int) (pods []*v1.Pod) {
	for i := range several {
		pod := ordinaryPod(fmt.Sprintf("several-%d", i))
		names, refused := []string{}, false
		for range 2 + random.IntN(4) {
			one := all[random.IntN(len(all))]
			if slices.Contains(names, one.name) || refused && one.refused {
				continue // of two reasons to refuse a pod the agents may report different ones
			}
			refused = refused || one.refused
			names = append(names, one.name)
			one.set(pod)
		}
		pod.Annotations[variantsNote] = strings.Join(names, " ")
		pods = append(pods, pod)
	}
	return pods
}

// side is a node of one agent, with a namespace for its pods.
type side struct {
	rig.Cluster
	rig.Node
	answers *probeServer // nil: pods send no requests
	cdi     string       // where the runtime looks for CDI specs; "": the machine's
}

func newSide(t *testing.T, agent string) *side { return newSideWith(t, agent, nil) }

// newSideWith starts a node; its agent also has these settings, and numalet these arguments.
func newSideWith(t *testing.T, agent string, settings map[string]any, ours ...string) *side {
	t.Helper()
	c, cdi := rig.Start(t), t.TempDir()
	n := harness.NewWith(t, crisim.Config{
		CDIDirs:    []string{cdi},
		Images:     []string{rootImage, userImage, namedImage, doneImage, "sim.local/data:1"},
		ImageUsers: map[string]string{userImage: "1000", namedImage: "web"},
		Handlers:   []string{"heavy"},
	})
	rig.ThisMachine(n)
	n.Settings["featureGates"] = map[string]bool{"DefaultPodSysctls": true}
	n.Settings["defaultPodSysctls"] = map[string]string{"net.ipv4.ip_unprivileged_port_start": "80",
		"net/ipv4/tcp_syncookies": "1", "kernel.shm_rmid_forced": "0"}
	maps.Copy(n.Settings, settings)
	if agent == "numalet" {
		n.Args = append(n.Args, ours...)
	}
	s := startSide(t, c, n, agent, "heavy")
	s.cdi = cdi
	return s
}

// startSide starts the agent on the node; handler is a handler of its runtime.
func startSide(t *testing.T, c rig.Cluster, n *harness.Node, agent, handler string) *side {
	t.Helper()
	n.Settings["cpuManagerPolicy"], n.Settings["topologyManagerPolicy"] = "none", "none"
	n.Settings["allowedUnsafeSysctls"] = []string{"net.core.*"}
	n.Settings["clusterDNS"], n.Settings["clusterDomain"] = []string{"10.96.0.10"}, "cluster.local"
	n.Settings["seccompDefault"] = true
	if agent == "kubelet" {
		rig.StockKubelet(t, n)
	}
	n.Settings["evictionHard"] = map[string]string{"memory.available": "1Mi"}
	s := &side{Cluster: c, Node: c.Join(n, agent)}
	s.furnish(t, handler)
	s.Start()
	s.AwaitReady(s.Name)
	return s
}

// furnish creates the objects that the pods use.
func (s *side) furnish(t *testing.T, handler string) {
	s.Apply(`{apiVersion: v1, kind: ConfigMap, metadata: {name: plain}, data: {k: v}}
---
{apiVersion: v1, kind: Secret, metadata: {name: plain}, stringData: {k: v}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: ` + otherAccount + `}}
`)
	_, err := s.Client.NodeV1().RuntimeClasses().Create(t.Context(), &nodev1.RuntimeClass{
		ObjectMeta: metav1.ObjectMeta{Name: handler}, Handler: handler,
		Overhead: &nodev1.Overhead{PodFixed: podtest.Amounts("cpu=20m memory=10Mi")},
	}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
}

// compare runs the pods on both nodes until they do not differ.
func compare(t *testing.T, sides []*side, pods []*v1.Pod) {
	t.Helper()
	pods = makeAll(t, sides, pods)
	time.Sleep(firstProbes)
	deadline := time.Now().Add(harness.Patience)
	for len(pods) > 0 {
		now := []map[string]any{sides[0].state(t), sides[1].state(t)}
		var all []string
		for _, pod := range pods {
			ours, theirs := now[0][pod.Name], now[1][pod.Name]
			is := differences(pod.Name, ours, theirs)
			if len(is) == 0 && ours == nil {
				is = []string{pod.Name + ": nothing came of it on either side"}
			}
			if len(is) > 0 {
				all = append(all, fmt.Sprintf("%s (%s)", pod.Name, pod.Annotations[variantsNote]))
			}
			all = append(all, is...)
		}
		if len(all) == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Errorf("numalet and the kubelet differ:\n%s", strings.Join(all, "\n"))
			break
		}
		time.Sleep(time.Second)
	}
	for _, s := range sides {
		s.MustRun("delete", "pods", "--all", "--timeout=1m")
	}
}

// state returns what the runtime and the API server have of each pod by now, as JSON without what
// differs between the nodes. It leaves out pods that are not settled.
func (s *side) state(t *testing.T) map[string]any {
	t.Helper()
	list, err := s.Client.CoreV1().Pods(s.Namespace).List(context.Background(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	state, out := s.Runtime.State(), map[string]any{}
	for i := range list.Items {
		pod := &list.Items[i]
		if !isSettled(pod) {
			continue
		}
		orders := map[string]any{"pod": words(pod)}
		pairs := []string{pod.Status.PodIP, "IP"} // a stopped sandbox has none any more
		for _, sandbox := range state.Sandboxes {
			if sandbox.UID == string(pod.UID) {
				config := inOrder(sandbox.Config)
				if remade(pod) || losesSandbox(pod) {
					config.Metadata.Attempt = 0
				}
				orders["sandbox"], orders["handler"] = config, sandbox.Handler
				pairs = append(pairs, sandbox.IP, "IP")
			}
		}
		newest := map[string]uint32{}
		for _, c := range state.Containers {
			name := c.Subject.Container
			if c.Subject.UID != string(pod.UID) {
				continue
			}
			pairs = append(pairs, c.Subject.ID, "ID of "+name)
			if newest[name] <= c.Subject.Attempt {
				newest[name] = c.Subject.Attempt
				orders["container "+name] = withoutOrder(c.Config)
			}
		}
		if s.answers != nil {
			orders["asked"] = s.answers.about(pod.Name)
			pairs = append(pairs, s.answers.address, "ANSWERS")
		}
		out[pod.Name] = s.normalized(t, orders, pod, pairs)
	}
	return out
}

// remade reports whether the kubelet may create another sandbox for the pod because its only
// container failed a probe: it applies the container's rules only after the whole pod has stopped.
func remade(pod *v1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.Containers, func(c v1.Container) bool {
		return c.LivenessProbe != nil && len(c.RestartPolicyRules) > 0
	})
}

// words returns the parts of a status that describe the pod.
func words(pod *v1.Pod) map[string]any {
	out := map[string]any{"phase": pod.Status.Phase, "reason": pod.Status.Reason,
		"message": pod.Status.Message, "qos": pod.Status.QOSClass}
	for _, c := range pod.Status.Conditions {
		out["condition "+string(c.Type)] = fmt.Sprint(c.Status, " ", c.Reason)
	}
	for _, c := range slices.Concat(statuses(pod), pod.Status.EphemeralContainerStatuses) {
		if w := c.State.Waiting; w != nil {
			out["waiting "+c.Name] = w.Reason + ": " + w.Message
		}
		out["mounts "+c.Name] = c.VolumeMounts
		out["ended "+c.Name] = []string{end(c.State), end(c.LastTerminationState)}
		out["is "+c.Name] = map[string]any{"ready": c.Ready, "started": c.Started,
			"restarts": c.RestartCount, "signal": c.StopSignal}
	}
	return out
}

// end describes how a container ended.
func end(s v1.ContainerState) string {
	if s.Terminated == nil {
		return ""
	}
	return fmt.Sprint(s.Terminated.Reason, " ", s.Terminated.ExitCode, " ", s.Terminated.Message)
}

// withoutOrder sorts the variables by name: those of services have no order.
func withoutOrder(c *runtimeapi.ContainerConfig) *runtimeapi.ContainerConfig {
	c = proto.CloneOf(c)
	slices.SortStableFunc(c.Envs, func(a, b *runtimeapi.KeyValue) int {
		return strings.Compare(a.Key, b.Key)
	})
	return c
}

// inOrder sorts the options of the resolver: the kubelet's have no order.
func inOrder(c *runtimeapi.PodSandboxConfig) *runtimeapi.PodSandboxConfig {
	c = proto.CloneOf(c)
	slices.Sort(c.GetDnsConfig().GetOptions())
	return c
}

var (
	lastWords = regexp.MustCompile(`(/containers/[-a-z0-9]+)/[0-9a-f]{8}`)
	taken     = regexp.MustCompile(`"host_id":[0-9]+`)
	// A container that is gone, since its rules have restarted the whole pod.
	goneTarget = regexp.MustCompile(`"target_id":"[0-9a-f]{64}"`)
	// What is in use, and so what is missing, depends on which pods came first.
	inUse = regexp.MustCompile(`\b(used|q): [0-9]+`)
	// The kubelet does not say what is wrong with the file.
	envFile = regexp.MustCompile(`: [^:]*: [^:]*: couldn't parse env file[^"]*"`)
)

// normalized returns the JSON without what differs between the nodes.
func (s *side) normalized(t *testing.T, orders any, pod *v1.Pod, more []string) (out any) {
	t.Helper()
	pairs := []string{s.Root, "ROOT", s.Dir, "DIR", string(pod.UID), "UID", s.Namespace, "NAMESPACE",
		`"` + s.Name + `"`, `"NODE"`}
	for i := 0; i < len(more); i += 2 {
		if more[i] != "" {
			pairs = append(pairs, more[i:i+2]...)
		}
	}
	return rewritten(t, orders, func(text string) string {
		text = strings.NewReplacer(pairs...).Replace(text)
		text = lastWords.ReplaceAllString(text, "$1/WORDS")
		text = taken.ReplaceAllString(text, `"host_id":1`)
		text = goneTarget.ReplaceAllString(text, `"target_id":"GONE"`)
		text = inUse.ReplaceAllString(text, "$1: N")
		return envFile.ReplaceAllString(text, `: couldn't parse env file"`)
	})
}

// rewritten returns a value after a change to its JSON text.
func rewritten(t *testing.T, value any, change func(string) string) (out any) {
	t.Helper()
	raw, err := json.Marshal(value)
	if err == nil {
		err = json.Unmarshal([]byte(change(string(raw))), &out)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// differences returns a line for each leaf in which the trees differ.
func differences(at string, ours, theirs any) (out []string) {
	if exempt(at, ours, theirs) {
		return nil
	}
	a, isMap := ours.(map[string]any)
	b, areMaps := theirs.(map[string]any)
	if isMap && areMaps {
		keys := map[string]bool{}
		for _, m := range []map[string]any{a, b} {
			for key := range m {
				keys[key] = true
			}
		}
		for key := range keys {
			out = append(out, differences(at+"."+key, a[key], b[key])...)
		}
		slices.Sort(out)
		return out
	}
	la, isList := ours.([]any)
	lb, areLists := theirs.([]any)
	if isList && areLists && len(la) == len(lb) {
		for i := range la {
			out = append(out, differences(fmt.Sprintf("%s[%d]", at, i), la[i], lb[i])...)
		}
		return out
	}
	ta, _ := json.Marshal(ours)
	tb, _ := json.Marshal(theirs)
	if string(ta) == string(tb) {
		return nil
	}
	return []string{fmt.Sprintf("%s:\n\tnumalet %s\n\tkubelet %s", at, ta, tb)}
}

// exempt reports whether this place may differ; docs/pod-fields.md, docs/resource-claims.md and
// docs/running.md say why.
func exempt(at string, ours, theirs any) bool {
	return strings.HasSuffix(at, ".volumeStatus") && ours != nil && theirs == nil ||
		// containerd may miss the network namespace of a pod with users of its own, once
		strings.HasSuffix(at, ".events.Warning FailedCreatePodSandBox") && (ours == nil) != (theirs == nil) ||
		strings.HasSuffix(at, ".files./etc/hosts") && theirs == "-rw-r--r-- 0:0 " ||
		strings.Contains(at, "annotations.kubernetes.io/config.") ||
		strings.Contains(at, "annotations.numalet.io/") ||
		strings.HasSuffix(at, ".selinux_relabel") ||
		strings.HasSuffix(at, ".events.Warning FailedPrepareDynamicResources") && theirs == true
}

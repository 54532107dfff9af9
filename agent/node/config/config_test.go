package config

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/deviceplugin/devicemanager"
)

const head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"

// load loads a command line. %dir% in arguments and expected errors stands for dir.
func load(t *testing.T, dir string, args ...string) (*Config, error) {
	t.Helper()
	fs := pflag.NewFlagSet("numalet", pflag.ContinueOnError)
	fs.SetOutput(&bytes.Buffer{})
	flags := AddFlags(fs)
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], "%dir%", dir)
	}
	if err := fs.Parse(args); err != nil {
		return nil, err
	}
	return Load(fs, flags)
}

func mustLoad(t *testing.T, dir string, args ...string) *Config {
	t.Helper()
	c, err := load(t, dir, args...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestDefaultsWithoutFile(t *testing.T) {
	c := mustLoad(t, "")
	k := c.Kubelet
	if !*k.Authentication.Anonymous.Enabled || *k.Authentication.Webhook.Enabled ||
		k.Authorization.Mode != "AlwaysAllow" || k.ReadOnlyPort != 10255 {
		t.Errorf("not the defaults from before the config file: %+v %+v %d",
			k.Authentication, k.Authorization, k.ReadOnlyPort)
	}
	if c.RootDir != "/var/lib/kubelet" || c.DevicePlugins.Wait != 2*time.Minute {
		t.Errorf("options: %+v", c.Options)
	}
	if d := c.DevicePlugins; d.Deadlines != devicemanager.DefaultDeadlines() ||
		d.Graces != devicemanager.DefaultGraces() || d.Strict {
		t.Errorf("device plugins: %+v", d)
	}
	if got := c.Unhonoured(); len(got) != 0 {
		t.Errorf("nothing was set, but unhonoured: %v", got)
	}
}

func TestDefaultsWithFile(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"k.yaml": head, "want.yaml": ""})
	got, err := mustLoad(t, dir, "--config", "%dir%/k.yaml").YAML()
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("testdata/defaults.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("defaults (-testdata/defaults.yaml +got):\n%s", diff)
	}
}

// TestFieldCount fails if the library adds fields: check their defaults and effects then.
func TestFieldCount(t *testing.T) {
	typ := reflect.TypeFor[kubeletv1beta1.KubeletConfiguration]()
	if got := typ.NumField() - 1; got != 126 {
		t.Errorf("KubeletConfiguration has %d fields besides TypeMeta", got)
	}
	for _, row := range fieldFlags() {
		var c kubeletv1beta1.KubeletConfiguration
		applyDefaults(&c)
		field := fieldAt(reflect.ValueOf(&c).Elem(), row.Path)
		if field.Kind() == reflect.Struct && field.Type().Name() != "Duration" {
			t.Errorf("flag %s: no field %s", row.Flag, row.Path)
		}
	}
	for name := range effects() {
		if strings.HasPrefix(name, "--") || strings.HasPrefix(name, "featureGates.") {
			continue
		}
		var found bool
		for i := range typ.NumField() {
			tag, _, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
			found = found || tag == name
		}
		if !found {
			t.Errorf("effects names %s, which is no field", name)
		}
	}
}

func TestDefaultsDependOnOthers(t *testing.T) {
	var c kubeletv1beta1.KubeletConfiguration
	halfMinute := metav1.Duration{Duration: 30 * time.Second}
	c.MaxParallelImagePulls = ptr.To[int32](4)
	c.NodeStatusUpdateFrequency = halfMinute
	c.EvictionHard = map[string]string{"memory.available": "1Gi"}
	c.MergeDefaultEvictionSettings = ptr.To(true)
	c.EnforceNodeAllocatable = []string{}
	applyDefaults(&c)
	if *c.SerializeImagePulls {
		t.Error("serializeImagePulls true with 4 parallel pulls")
	}
	if c.NodeStatusReportFrequency != halfMinute {
		t.Errorf("nodeStatusReportFrequency %v, want that of updates", c.NodeStatusReportFrequency)
	}
	if c.EvictionHard["memory.available"] != "1Gi" || c.EvictionHard["nodefs.available"] != "10%" {
		t.Errorf("evictionHard %v", c.EvictionHard)
	}
	if len(c.EnforceNodeAllocatable) != 0 {
		t.Errorf("an empty list was replaced by %v", c.EnforceNodeAllocatable)
	}
	before := c.DeepCopy()
	applyDefaults(&c)
	if diff := cmp.Diff(before, &c); diff != "" {
		t.Errorf("defaulting twice differs:\n%s", diff)
	}
}

func TestRoundTrip(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"a.yaml": head + `
staticPodPath: manifests
cpuManagerPolicy: static
reservedSystemCPUs: 0-1
evictionHard: {memory.available: 5%}
logging: {format: json, verbosity: 4, flushFrequency: 3s}
crashLoopBackOff: {maxContainerRestartPeriod: 60s}
featureGates: {NodeSwap: true}
registerWithTaints: [{key: a, value: b, effect: NoSchedule}]
`})
	first := mustLoad(t, dir, "--config", "%dir%/a.yaml")
	if want := filepath.Join(dir, "manifests"); first.Kubelet.StaticPodPath != want {
		t.Errorf("staticPodPath %q, want %q", first.Kubelet.StaticPodPath, want)
	}
	text, err := first.YAML()
	if err != nil {
		t.Fatal(err)
	}
	write(t, dir, map[string]string{"b.yaml": text})
	second := mustLoad(t, dir, "--config", "%dir%/b.yaml")
	if diff := cmp.Diff(first.Kubelet, second.Kubelet); diff != "" {
		t.Errorf("printed and read again:\n%s", diff)
	}
}

func TestYAMLMasksSecrets(t *testing.T) {
	const location = "https://me:secret@host/pods?token=secret"
	c := mustLoad(t, "", "--manifest-url-header", "Authorization:Bearer secret",
		"--manifest-url", location)
	got := c.Kubelet.StaticPodURLHeader["Authorization"]
	if !slices.Equal(got, []string{"Bearer secret"}) {
		t.Fatalf("header %v", got)
	}
	text, err := c.YAML()
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(text, "secret") || !strings.Contains(text, "<masked>") {
		t.Errorf("a secret is printed:\n%s", text)
	}
	want := []string{"--manifest-url=https://me:xxxxx@host/pods?xxxxx",
		"--manifest-url-header=<masked>"}
	if got := c.Given(); !slices.Equal(got, want) {
		t.Errorf("the given flags are %q, want %q", got, want)
	}
	if c.Kubelet.StaticPodURL != location {
		t.Errorf("the URL in use is %s", c.Kubelet.StaticPodURL)
	}
	if c.Kubelet.StaticPodURLHeader["Authorization"][0] != "Bearer secret" {
		t.Error("printing masked the value in use")
	}
}

func TestDropIns(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{
		"base.yaml":     head + "maxPods: 1\nport: 1111\nevictionHard: {memory.available: 1Gi}\n",
		"d/20-b.conf":   head + "maxPods: 20\nevictionHard: {pid.available: 5%}\n",
		"d/10-a.conf":   head + "maxPods: 10\npodsPerCore: 7\nfeatureGates: {NodeSwap: true}\n",
		"d/15/x.conf":   head + "maxPods: 15\nport: null\nfeatureGates: {MemoryQoS: false}\n",
		"d/30.conf.bak": "not: yaml: at all",
		"d/40.yaml":     "broken: [",
		"empty/readme":  "",
	})
	k := mustLoad(t, dir, "--config=%dir%/base.yaml", "--config-dir=%dir%/d").Kubelet
	if k.MaxPods != 20 || k.PodsPerCore != 7 || k.Port != 10250 {
		t.Errorf("maxPods %d, podsPerCore %d, port %d; want 20, 7, 10250 (null is the default)",
			k.MaxPods, k.PodsPerCore, k.Port)
	}
	want := map[string]string{"memory.available": "1Gi", "pid.available": "5%"}
	if diff := cmp.Diff(want, k.EvictionHard); diff != "" {
		t.Errorf("maps are merged:\n%s", diff)
	}
	gates := map[string]bool{"NodeSwap": true, "MemoryQoS": false}
	if diff := cmp.Diff(gates, k.FeatureGates); diff != "" {
		t.Errorf("featureGates:\n%s", diff)
	}
	k = mustLoad(t, dir, "--config-dir=%dir%/d").Kubelet
	if k.MaxPods != 20 || k.ReadOnlyPort != 10255 {
		t.Errorf("without --config: maxPods %d, readOnlyPort %d", k.MaxPods, k.ReadOnlyPort)
	}
	mustLoad(t, dir, "--config-dir=%dir%/empty")
}

func TestFlagsWin(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"k.yaml": head + `
maxPods: 5
failSwapOn: true
clusterDNS: [10.0.0.1]
systemReserved: {cpu: "1", memory: 1Gi}
evictionHard: {memory.available: 1Gi}
featureGates: {NodeSwap: true, MemoryQoS: true}
logging: {verbosity: 2, options: {text: {infoBufferSize: 0}}}
cpuCFSQuotaPeriod: 50ms
`})
	c := mustLoad(t, dir, "--config", "%dir%/k.yaml", "--max_pods=9", "--fail-swap-on=false",
		"--cluster-dns=10.0.0.2,10.0.0.3", "--cluster-dns=10.0.0.4",
		"--system-reserved=cpu=2", "--system-reserved=pid=100",
		"--eviction-hard=memory.available<5%,nodefs.available<1Gi",
		"--feature-gates=MemoryQoS=false,CRIListStreaming=true",
		"--reserved-memory", "0:memory=1Gi,hugepages-2Mi=4Mi;1:memory=2Gi",
		"--register-with-taints=a=b:NoSchedule,c:NoExecute",
		"--authorization-mode=AlwaysAllow", "--resolv-conf=/x", "-v", "5",
		"--vmodule=a=3", "--node-labels=x=y")
	k := c.Kubelet
	want := k.DeepCopy()
	want.MaxPods = 9
	want.FailSwapOn = ptr.To(false)
	want.ClusterDNS = []string{"10.0.0.2", "10.0.0.3", "10.0.0.4"}
	want.SystemReserved = map[string]string{"cpu": "2", "pid": "100"}
	want.EvictionHard = map[string]string{"memory.available": "5%", "nodefs.available": "1Gi"}
	want.FeatureGates = map[string]bool{"NodeSwap": true, "MemoryQoS": false,
		"CRIListStreaming": true}
	want.ReservedMemory = []kubeletv1beta1.MemoryReservation{
		{NumaNode: 0, Limits: v1.ResourceList{"memory": resource.MustParse("1Gi"),
			"hugepages-2Mi": resource.MustParse("4Mi")}},
		{NumaNode: 1, Limits: v1.ResourceList{"memory": resource.MustParse("2Gi")}}}
	want.RegisterWithTaints = []v1.Taint{{Key: "a", Value: "b", Effect: "NoSchedule"},
		{Key: "c", Effect: "NoExecute"}}
	want.Authorization.Mode = "AlwaysAllow"
	want.ResolverConfig = ptr.To("/x")
	want.Logging.Verbosity = 5
	if diff := cmp.Diff(want, &k); diff != "" {
		t.Error(diff)
	}
	if k.CPUCFSQuotaPeriod.Duration != 50*time.Millisecond || k.Logging.Format != "text" {
		t.Errorf("fields without flags changed: %v %q", k.CPUCFSQuotaPeriod, k.Logging.Format)
	}
	if len(k.Logging.VModule) != 1 || c.Node.Labels["x"] != "y" {
		t.Errorf("vmodule %v, labels %v", k.Logging.VModule, c.Node.Labels)
	}
	if c.Gates.Enabled("MemoryQoS") || !c.Gates.Enabled("CRIListStreaming") {
		t.Error("gates differ from featureGates")
	}
}

func TestUnhonoured(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"k.yaml": head + `
maxPods: 5
volumePluginDir: /x
authentication: {anonymous: {enabled: true}}
evictionSoft: {memory.available: 1Gi, containerfs.available: 5%}
evictionSoftGracePeriod: {memory.available: 1m, containerfs.available: 1m}
enforceNodeAllocatable: [pods]
logging: {options: {json: {infoBufferSize: 0}}}
featureGates: {NodeSwap: true, ContextualLogging: true}
mergeDefaultEvictionSettings: true
registerWithTaints: []
syncFrequency: null
`})
	got := mustLoad(t, dir, "--config=%dir%/k.yaml", "--port=10251", "--max-pods=4", "-v=2",
		"--kubeconfig=/x", "--housekeeping-interval=1s", "--hairpin-mode=promiscuous-bridge",
		"--feature-gates=GenericWorkload=true,CSIVolumeHealth=false,EnvFiles=false",
		"--qos-reserved=memory=50%",
		"--eviction-hard=memory.available<2Gi,containerfs.inodesFree<1").Unhonoured()
	const follows = " (follows nodefs or imagefs)"
	want := []string{"--housekeeping-interval (statistics are read when they are asked for)",
		"--qos-reserved (needs feature gate QOSReserved)",
		"evictionHard[containerfs.inodesFree]" + follows, "evictionSoft[containerfs.available]" + follows,
		"featureGates.EnvFiles (always on)", "volumePluginDir (it is FlexVolume's, whose pods are refused)"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestHelpAndVersion(t *testing.T) {
	fs := pflag.NewFlagSet("numalet", pflag.ContinueOnError)
	flags := AddFlags(fs)
	usage := fs.FlagUsages()
	for _, want := range []string{"--max-pods int32", "(default 110)", "--topology-from string",
		"-v, --v Level", "DEPRECATED: set it in the file given with --config"} {
		if !strings.Contains(usage, want) {
			t.Errorf("help lacks %q", want)
		}
	}
	fs.VisitAll(func(f *pflag.Flag) {
		if f.Usage == "" {
			t.Errorf("--%s has no help", f.Name)
		}
	})
	var out bytes.Buffer
	if asked, err := flags.PrintVersion(&out, "numalet"); asked || err != nil || out.Len() > 0 {
		t.Errorf("version printed without being asked for: %v %q", err, &out)
	}
	if err := fs.Parse([]string{"--version"}); err != nil {
		t.Fatal(err)
	}
	if asked, err := flags.PrintVersion(&out, "numalet"); !asked || err != nil ||
		!strings.HasPrefix(out.String(), "numalet v") {
		t.Errorf("PrintVersion: %v %v %q", asked, err, &out)
	}
}

func TestNodeName(t *testing.T) {
	c := &Config{Options: Options{Node: NodeOptions{HostnameOverride: " Node-A.example "}}}
	if got, err := c.NodeName(); got != "node-a.example" || err != nil {
		t.Errorf("NodeName() = %q, %v", got, err)
	}
	c.Node.HostnameOverride = "a_b"
	if _, err := c.NodeName(); err == nil {
		t.Error("a_b is no node name")
	}
}

func TestThreshold(t *testing.T) {
	for value, want := range map[string]int64{"100Mi": 100 << 20, "10%": 100, "12.5%": 125} {
		got, ok, err := ParseThreshold(value)
		if err != nil || !ok || got.Of(1000) != want {
			t.Errorf("%s of 1000: %d, %v, %v; want %d", value, got.Of(1000), ok, err, want)
		}
	}
	for _, value := range []string{"0%", "100%"} {
		if _, ok, err := ParseThreshold(value); ok || err != nil {
			t.Errorf("%s: ok %v, err %v; want off", value, ok, err)
		}
	}
	for _, value := range []string{"", "-1", "101%", "NaN%", "x", "%"} {
		if _, _, err := ParseThreshold(value); err == nil {
			t.Errorf("%q was accepted", value)
		}
	}
}

package config

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"
)

// Each bad file or command line yields exactly one line.
func TestBadFiles(t *testing.T) {
	const see = "config file %dir%/k.yaml"
	tests := map[string]struct{ content, want string }{
		"empty": {"", see + " is empty"},
		"truncated": {head + "clusterDNS: [a,", see +
			" is not YAML or JSON: line 3: did not find expected node content"},
		"binary": {"\x7fELF\x00\x01", see +
			" is not YAML or JSON: control characters are not allowed"},
		"two documents": {head + "---\n" + head,
			see + " holds 2 documents; put each in a file of its own"},
		"kind": {"apiVersion: v1\nkind: Pod\n", see +
			`: want apiVersion "kubelet.config.k8s.io/v1beta1" ` +
			`and kind "KubeletConfiguration", found apiVersion "v1" and kind "Pod"`},
		"no kind": {"maxPods: 1\n", see + `: want apiVersion "kubelet.config.k8s.io/v1beta1" ` +
			`and kind "KubeletConfiguration", found apiVersion "" and kind ""`},
		"wrong type": {head + "maxPods: many\n",
			see + `: maxPods: want a whole number of 32 bits, found the string "many"`},
		"duplicate": {head + "maxPods: 1\nmaxPods: 2\n",
			see + `: duplicate field: line 4: key "maxPods" already set in map; keep one of them`},
		"unknown": {head + "maxPod: 1\n", see + `: maxPod: unknown field; did you mean "maxPods"?`},
		"unknown nested": {head + "authentication:\n  webhook:\n    foo: 1\n",
			see + `: authentication.webhook.foo: unknown field; remove it or correct its name`},
		"two problems": {head + "syncFrequency: 5\nfoo: 1\n",
			see + `: syncFrequency: want a duration such as "10s" or "2m", found the number 5; ` +
				`foo: unknown field; remove it or correct its name`},
		"unknown option": {head + "cpuManagerPolicy: static\nreservedSystemCPUs: \"0\"\n" +
			"cpuManagerPolicyOptions: {foo: \"true\"}\n",
			`invalid configuration: cpuManagerPolicyOptions.foo: Unsupported value: "foo": ` +
				`supported values: "align-by-socket", "distribute-cpus-across-cores", ` +
				`"distribute-cpus-across-numa", "full-pcpus-only", ` +
				`"prefer-align-cpus-by-uncorecache", "strict-cpu-reservation"`},
		"conflicting options": {head + "cpuManagerPolicy: static\nreservedSystemCPUs: \"0\"\n" +
			"cpuManagerPolicyOptions: {prefer-align-cpus-by-uncorecache: \"true\", " +
			"distribute-cpus-across-numa: \"true\"}\n",
			`invalid configuration: cpuManagerPolicyOptions.prefer-align-cpus-by-uncorecache: ` +
				`Forbidden: cannot be used with distribute-cpus-across-numa`},
		"memory QoS without its gate": {head + "featureGates: {MemoryQoS: false}\n" +
			"memoryThrottlingFactor: 0.8\nmemoryReservationPolicy: TieredReservation\n",
			`invalid configuration: memoryReservationPolicy: Forbidden: ` +
				`TieredReservation needs feature gate MemoryQoS; ` +
				`memoryThrottlingFactor: Forbidden: needs feature gate MemoryQoS`},
		"alpha option": {head + "cpuManagerPolicy: static\nreservedSystemCPUs: \"0\"\n" +
			"cpuManagerPolicyOptions: {align-by-socket: \"true\"}\n",
			`invalid configuration: cpuManagerPolicyOptions.align-by-socket: Forbidden: ` +
				`needs feature gate CPUManagerPolicyAlphaOptions`},
		"whole cores and spread cores": {head +
			"cpuManagerPolicy: static\nreservedSystemCPUs: \"0\"\n" +
			"featureGates: {CPUManagerPolicyAlphaOptions: true}\n" +
			"cpuManagerPolicyOptions: {full-pcpus-only: \"true\", " +
			"distribute-cpus-across-cores: \"true\"}\n",
			`invalid configuration: cpuManagerPolicyOptions.full-pcpus-only: Forbidden: ` +
				`cannot be used with distribute-cpus-across-cores`},
		"spread cores over nodes": {head + "cpuManagerPolicy: static\nreservedSystemCPUs: \"0\"\n" +
			"featureGates: {CPUManagerPolicyAlphaOptions: true}\n" +
			"cpuManagerPolicyOptions: {distribute-cpus-across-numa: \"true\", " +
			"distribute-cpus-across-cores: \"true\"}\n",
			`invalid configuration: cpuManagerPolicyOptions.distribute-cpus-across-numa: ` +
				`Forbidden: cannot be used with distribute-cpus-across-cores`},
		"beta option without its gate": {head +
			"cpuManagerPolicy: static\nreservedSystemCPUs: \"0\"\n" +
			"featureGates: {CPUManagerPolicyBetaOptions: false}\n" +
			"cpuManagerPolicyOptions: {distribute-cpus-across-numa: \"true\"}\n",
			`invalid configuration: cpuManagerPolicyOptions.distribute-cpus-across-numa: ` +
				`Forbidden: needs feature gate CPUManagerPolicyBetaOptions`},
		"sockets and a single node": {head +
			"cpuManagerPolicy: static\nreservedSystemCPUs: \"0\"\n" +
			"featureGates: {CPUManagerPolicyAlphaOptions: true}\n" +
			"topologyManagerPolicy: single-numa-node\n" +
			"cpuManagerPolicyOptions: {align-by-socket: \"true\"}\n",
			`invalid configuration: cpuManagerPolicyOptions.align-by-socket: Forbidden: ` +
				`cannot be used with topologyManagerPolicy single-numa-node`},
		"neither true nor false": {head + "cpuManagerPolicy: static\nreservedSystemCPUs: \"0\"\n" +
			"cpuManagerPolicyOptions: {strict-cpu-reservation: \"yes\"}\n",
			`invalid configuration: cpuManagerPolicyOptions.strict-cpu-reservation: Invalid ` +
				`value: "yes": must be true or false`},
		"options for none": {head + "cpuManagerPolicyOptions: {full-pcpus-only: \"true\"}\n",
			`invalid configuration: cpuManagerPolicyOptions: Forbidden: policy none takes no ` +
				`options`},
		"static without reservation": {head + "cpuManagerPolicy: static\n",
			`invalid configuration: cpuManagerPolicy: Invalid value: "static": the static policy ` +
				`requires systemreserved.cpu + kubereserved.cpu to be greater than zero; set ` +
				`kubeReserved.cpu, systemReserved.cpu or reservedSystemCPUs (--reserved-cpus)`},
		"policy": {head + "topologyManagerPolicy: best\n",
			`invalid configuration: topologyManagerPolicy: Unsupported value: "best": supported ` +
				`values: "none", "best-effort", "restricted", "single-numa-node"`},
		"several": {head +
			"port: 0\nreadOnlyPort: -1\noomScoreAdj: 1001\nimageGCHighThresholdPercent: 80\n",
			`invalid configuration: imageGCLowThresholdPercent: Invalid value: 80: must be less ` +
				`than imageGCHighThresholdPercent, 80; oomScoreAdj: Invalid value: 1001: must be ` +
				`-1000 to 1000; readOnlyPort: Invalid value: -1: must be 0 to 65535`},
		"one port for two": {head + "readOnlyPort: 10250\n",
			`invalid configuration: readOnlyPort: Invalid value: 10250: must not be that of port`},
		"memory of classes": {head + "qosReserved: {memory: \"101%\"}\n",
			`invalid configuration: qosReserved: Invalid value: {"memory":"101%"}: ` +
				`memory: want 0% to 100%, found "101%"`},
		"CPUs of classes": {head + "qosReserved: {cpu: 10%}\n",
			`invalid configuration: qosReserved: Invalid value: {"cpu":"10%"}: ` +
				`cpu: cannot be reserved; want memory`},
		"daemons at the top": {head + "cgroupRoot: /\nsystemCgroups: /\n",
			`invalid configuration: systemCgroups: Invalid value: "/": must be a cgroup below /, ` +
				`such as /system`},
		"metrics of another version": {head + "showHiddenMetricsForVersion: \"1.35\"\n",
			`invalid configuration: showHiddenMetricsForVersion: Invalid value: "1.35": must be ` +
				`omitted or have the value '1.36'; only the previous minor version is allowed`},
		"spans": {head + "tracing: {endpoint: \"http://x:4317\", samplingRatePerMillion: 1000001}\n",
			`invalid configuration: tracing.endpoint: Invalid value: "http://x:4317": unsupported ` +
				`scheme: http.  Options are none, dns, unix, or unix-abstract.  See ` +
				`https://github.com/grpc/grpc/blob/master/doc/naming.md; ` +
				`tracing.samplingRatePerMillion: Invalid value: 1000001: sampling rate per million ` +
				`must be less than or equal to one million`},
		"gate": {head + "featureGates: {Nope: true}\n",
			`invalid configuration: featureGates: unrecognized feature gate: Nope`},
		"locked gate": {head + "featureGates: {NodeSwap: false}\n",
			`invalid configuration: featureGates: cannot set feature gate NodeSwap to false, ` +
				`feature is locked to true`},
		"eviction": {head + "evictionHard: {memory.available: lots, cpu: 1%}\n",
			`invalid configuration: evictionHard[cpu]: Unsupported value: "cpu": supported ` +
				`values: "memory.available", "nodefs.available", "nodefs.inodesFree", ` +
				`"imagefs.available", "imagefs.inodesFree", "pid.available", ` +
				`"allocatableMemory.available"; evictionHard[memory.available]: Invalid value: ` +
				`"lots": want a quantity such as "100Mi" or a percentage such as "10%", found ` +
				`"lots"`},
		"eviction of nothing": {head + "evictionHard: {memory.available: \"0\"}\n" +
			"evictionMinimumReclaim: {nodefs.available: \"0\", imagefs.available: 0%}\n",
			`invalid configuration: evictionHard[memory.available]: Invalid value: "0": must be ` +
				`positive; "0%" turns the signal off; evictionMinimumReclaim[imagefs.available]: ` +
				`Invalid value: "0%": must be positive; leave it out`},
		"shutdown": {head + "shutdownGracePeriod: 500ms\nshutdownGracePeriodCriticalPods: 2s\n",
			`invalid configuration: shutdownGracePeriod: Invalid value: "500ms": must be 0 or at ` +
				`least 1s; shutdownGracePeriodCriticalPods: Invalid value: "2s": must not be more ` +
				`than shutdownGracePeriod, 500ms`},
		"shutdown by priority": {head + "shutdownGracePeriod: 10s\n" +
			"shutdownGracePeriodByPodPriority: [{priority: 0, shutdownGracePeriodSeconds: -1}]\n",
			`invalid configuration: shutdownGracePeriodByPodPriority: Forbidden: cannot be used with ` +
				`shutdownGracePeriod or shutdownGracePeriodCriticalPods; ` +
				`shutdownGracePeriodByPodPriority[0].shutdownGracePeriodSeconds: Invalid value: -1: ` +
				`must not be negative`},
		"shutdown without its gate": {head + "featureGates: {GracefulNodeShutdown: false}\n" +
			"shutdownGracePeriod: 10s\n",
			`invalid configuration: shutdownGracePeriod: Forbidden: needs feature gate ` +
				`GracefulNodeShutdown`},
		"shutdown by priority without its gate": {head +
			"featureGates: {GracefulNodeShutdownBasedOnPodPriority: false}\n" +
			"shutdownGracePeriodByPodPriority: [{priority: 0, shutdownGracePeriodSeconds: 1}]\n",
			`invalid configuration: shutdownGracePeriodByPodPriority: Forbidden: needs feature gate ` +
				`GracefulNodeShutdownBasedOnPodPriority`},
		"soft eviction": {head + "evictionSoft: {memory.available: 1Gi}\n",
			`invalid configuration: evictionSoftGracePeriod[memory.available]: Required value: ` +
				`evictionSoft needs a grace period for each signal`},
		"reserved": {head + "kubeReserved: {gpu: \"1\"}\nreservedSystemCPUs: 1-x\n",
			`invalid configuration: kubeReserved: Invalid value: {"gpu":"1"}: gpu: cannot be ` +
				`reserved; want one of cpu, memory, ephemeral-storage, pid; reservedSystemCPUs: ` +
				`Invalid value: "1-x": must be a list of CPUs such as "0-1,8"`},
		"enforce": {head + "enforceNodeAllocatable: [none, pods, system-reserved]\n",
			`invalid configuration: enforceNodeAllocatable[0]: Invalid value: "none": none must ` +
				`stand alone; enforceNodeAllocatable[2]: Invalid value: "system-reserved": needs ` +
				`systemReservedCgroup`},
		"parallel pulls": {head + "maxParallelImagePulls: 3\nserializeImagePulls: true\n",
			`invalid configuration: maxParallelImagePulls: Invalid value: 3: must be 1 when ` +
				`serializeImagePulls is true`},
		"log format": {head + "logging: {format: xml}\n",
			`invalid configuration: logging.format: Invalid value: "xml": Unsupported log format`},
		"run once": {head + "runOnce: true\n",
			`invalid configuration: runOnce: Forbidden: run-once mode is not supported`},
		"reserved memory": {head + "reservedMemory:\n- {numaNode: 0, limits: {memory: 1Gi}}\n" +
			"- {numaNode: 0, limits: {memory: 2Gi, disk: 1}}\n",
			`invalid configuration: reservedMemory[1].limits[disk]: Unsupported value: "disk": ` +
				`supported values: "memory", "hugepages-<size>"; ` +
				`reservedMemory[1].limits[memory]: Duplicate value: "memory"`},
		"restart period of a gate": {head + "featureGates: {KubeletCrashLoopBackOffMax: false}\n" +
			"crashLoopBackOff: {maxContainerRestartPeriod: 1m}\n",
			`invalid configuration: crashLoopBackOff.maxContainerRestartPeriod: Forbidden: ` +
				`needs feature gate KubeletCrashLoopBackOffMax`},
		"restart period": {head + "crashLoopBackOff: {maxContainerRestartPeriod: 10m}\n",
			`invalid configuration: crashLoopBackOff.maxContainerRestartPeriod: Invalid value: ` +
				`"10m0s": must be 1s to 5m0s`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir, map[string]string{"k.yaml": tt.content})
			_, err := load(t, dir, "--config=%dir%/k.yaml")
			checkLine(t, err, strings.ReplaceAll(tt.want, "%dir%", dir))
		})
	}
}

func TestBadCommandLines(t *testing.T) {
	tests := []struct {
		args []string
		want string
	}{
		{[]string{"start"}, `unknown command "start"; only flags are accepted, see --help`},
		{[]string{"--max-pods=many"},
			`invalid argument "many" for "--max-pods" flag: strconv.ParseInt: ` +
				`parsing "many": invalid syntax`},
		{[]string{"--config=/nonexistent"},
			`read config file: open /nonexistent: no such file or directory`},
		{[]string{"--config-dir=/nonexistent"},
			`list --config-dir: lstat /nonexistent: no such file or directory`},
		{[]string{"--cloud-provider=aws"},
			`invalid configuration: --cloud-provider: Unsupported value: "aws": ` +
				`supported values: "external"`},
		{[]string{"--container-runtime-endpoint=bogus",
			"--image-service-endpoint=tcp://127.0.0.1:2"},
			`invalid configuration: containerRuntimeEndpoint: Invalid value: "bogus": must be ` +
				`unix:///PATH, such as unix:///run/containerd/containerd.sock; ` +
				`imageServiceEndpoint: Invalid value: "tcp://127.0.0.1:2": must be unix:///PATH, ` +
				`such as unix:///run/containerd/containerd.sock`},
		{[]string{"--container-runtime-endpoint=unix://run/x.sock"}, `invalid configuration: ` +
			`containerRuntimeEndpoint: Invalid value: "unix://run/x.sock": must be unix:///PATH, ` +
			`such as unix:///run/containerd/containerd.sock`},
		{[]string{"--node-ip=1.2.3"},
			`invalid configuration: --node-ip: Invalid value: "1.2.3": must be an IP address`},
		{[]string{"--node-ip=10.0.0.1,10.0.0.2"}, `invalid configuration: --node-ip: Invalid value: ` +
			`"10.0.0.1,10.0.0.2": two addresses must be of the two families; ` +
			`give one address, or one IPv4 and one IPv6 address with a comma`},
		{[]string{"--node-ip=10.0.0.1,::"}, `invalid configuration: --node-ip: Invalid value: ` +
			`"10.0.0.1,::": 0.0.0.0 and :: cannot be one of two addresses; ` +
			`give one address, or one IPv4 and one IPv6 address with a comma`},
		{[]string{"--node-ip=fe80::1"}, `invalid configuration: --node-ip: Forbidden: fe80::1 is a ` +
			`link-local address, at which other nodes do not find this one`},
		{[]string{"--node-ip=ff02::1"}, `invalid configuration: --node-ip: Forbidden: ff02::1 is a ` +
			`multicast address, which no node has`},
		{[]string{"--reserved-memory=0:memory"},
			`invalid argument "0:memory" for "--reserved-memory" flag: ` +
				`reserved memory "memory": want type=quantity, such as memory=1Gi`},
		{[]string{"--register-with-taints=x"},
			`invalid argument "x" for "--register-with-taints" flag: ` +
				`taint "x": want key=value:Effect`},
		{[]string{"--isolated-cpus=x", "--cpu-manager-policy=static", "--reserved-cpus=0"},
			`invalid configuration: --isolated-cpus: Invalid value: "x": "x": write none, auto or a ` +
				`list like 2-7,18-23: strconv.Atoi: parsing "x": invalid syntax`},
		{[]string{"--device-failure-policy=example.com/gpu=kill"},
			`invalid configuration: --device-failure-policy: Invalid value: "example.com/gpu=kill": "kill" is ` +
				`no action; write none, event, restart-container or fail-pod, such as example.com/gpu=fail-pod:2m`},
		{[]string{"--device-failure-policy=event,fail-pod"},
			`invalid configuration: --device-failure-policy: Invalid value: "fail-pod": it is the second rule ` +
				`without a name; keep one`},
		{[]string{"--device-failure-spacing=-1s"}, `invalid configuration: --device-failure-spacing: ` +
			`Invalid value: "-1s": must be between 0 and 24h`},
		{[]string{"--device-failure-hold-off=25h"}, `invalid configuration: --device-failure-hold-off: ` +
			`Invalid value: "25h0m0s": must be between 0 and 24h`},
		{[]string{"--claim-attributes=x/numa=node,numa=node,x/b=c"},
			`invalid configuration: --claim-attributes: Invalid value: "x/numa=node,numa=node,x/b=c": write ` +
				`DOMAIN/NAME=MEANING, as example.com/numa=node; "numa=node": the name has to be letters, digits ` +
				`and _, at most 32; "x/b=c": there are the meanings node nodes pciAddress pcieRoot uuid ` +
				`parentUUID cpu cpus pageSize ignored`},
		{[]string{"--isolated-cpus=auto"}, `invalid configuration: --isolated-cpus: Forbidden: ` +
			`only cpuManagerPolicy static gives out CPUs; set that too`},
		{[]string{"--device-plugin-allocate-timeout=0"}, `invalid configuration: ` +
			`--device-plugin-allocate-timeout: Invalid value: "0s": must be more than 0`},
		{[]string{"--plugin-registry-info-timeout=0"}, `invalid configuration: ` +
			`--plugin-registry-info-timeout: Invalid value: "0s": must be more than 0`},
		{[]string{"--device-plugin-capacity-grace=-1s"}, `invalid configuration: ` +
			`--device-plugin-capacity-grace: Invalid value: "-1s": must not be negative`},
		{[]string{"--no-such-flag"}, `unknown flag: --no-such-flag`},
	}
	for _, tt := range tests {
		_, err := load(t, "", tt.args...)
		checkLine(t, err, tt.want)
	}
}

// A named pipe without a writer blocks nobody.
func TestConfigFileThatIsNone(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "k.conf")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, flag := range []string{"--config=%dir%/k.conf", "--config-dir=%dir%"} {
		_, err := load(t, dir, flag)
		if want := "read config file: " + path + " is not a regular file"; err == nil ||
			err.Error() != want {
			t.Errorf("%s: %v, want %s", flag, err, want)
		}
	}
}

func TestBadDropInIsNamed(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"a.conf": head, "b.conf": head + "maxPods: x\n"})
	_, err := load(t, dir, "--config-dir=%dir%")
	checkLine(t, err, "config file "+dir+
		`/b.conf: maxPods: want a whole number of 32 bits, found the string "x"`)
}

func checkLine(t *testing.T, err error, want string) {
	t.Helper()
	switch {
	case err == nil:
		t.Errorf("accepted; want %q", want)
	case err.Error() != want:
		t.Errorf("error\n  %s\nwant\n  %s", err, want)
	}
}

// FuzzFile: no file crashes Load, errors are one line, and an accepted configuration is accepted
// again when it is printed.
func FuzzFile(f *testing.F) {
	f.Add([]byte(head + "maxPods: 3\nevictionSoft: {memory.available: 1Gi}\n"))
	f.Add([]byte(head +
		"logging: {vmodule: [{filePattern: a, verbosity: 3}]}\ntracing: {endpoint: x}\n"))
	f.Add([]byte(head +
		"userNamespaces: {}\nreservedMemory: [{numaNode: 1, limits: {memory: 1}}]\n"))
	f.Add([]byte("{"))
	f.Fuzz(func(t *testing.T, data []byte) {
		dir := t.TempDir()
		try := func(data []byte) (*Config, error) {
			name := filepath.Join(dir, "k.yaml")
			if err := os.WriteFile(name, data, 0o600); err != nil {
				t.Fatal(err)
			}
			fs := pflag.NewFlagSet("numalet", pflag.ContinueOnError)
			fs.SetOutput(&bytes.Buffer{})
			flags := AddFlags(fs)
			if err := fs.Parse([]string{"--config", name}); err != nil {
				t.Fatal(err)
			}
			return Load(fs, flags)
		}
		c, err := try(data)
		if err != nil {
			if strings.ContainsAny(err.Error(), "\n\r") {
				t.Fatalf("several lines: %q", err)
			}
			return
		}
		text, err := c.YAML()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := try([]byte(text)); err != nil {
			t.Fatalf("accepted, printed and refused: %v\n%s", err, text)
		}
	})
}

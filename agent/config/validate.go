package config

import (
	"errors"
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	cliflag "k8s.io/component-base/cli/flag"
	logsapi "k8s.io/component-base/logs/api/v1"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/numalet/numalet/topology/strictyaml"
)

// validate lists everything that is wrong, in one line with the path of each field.
func validate(c *Config) error {
	var errs field.ErrorList
	for _, check := range []func(*Config) field.ErrorList{
		validateRanges, validateChoices, validateServer, validateSources, validateImages,
		validateLogs, validateNode, validateAllocatable, validateReserved, validateCPUManager,
		validateMemory, validateTopology, validateEviction, validateShutdown, validateSysctls,
		validateOptions,
	} {
		errs = append(errs, check(c)...)
	}
	k := &c.Kubelet
	errs = append(errs, logsapi.Validate(&k.Logging, c.Gates, field.NewPath("logging"))...)
	return inOneLine(errs)
}

// inOneLine is nil when nothing is wrong.
func inOneLine(errs field.ErrorList) error {
	if len(errs) == 0 {
		return nil
	}
	slices.SortStableFunc(errs, func(a, b *field.Error) int {
		return strings.Compare(a.Field, b.Field)
	})
	lines := make([]string, len(errs))
	for i, err := range errs {
		lines[i] = strictyaml.OneLine(err.Error())
	}
	return errors.New("invalid configuration: " + strings.Join(lines, "; "))
}

// path is a field path from its dotted form.
func path(dotted string) *field.Path {
	first, rest, _ := strings.Cut(dotted, ".")
	p := field.NewPath(first)
	for rest != "" {
		first, rest, _ = strings.Cut(rest, ".")
		p = p.Child(first)
	}
	return p
}

// bounds says that low <= value <= high.
type bounds struct {
	path             string
	value, low, high int64
}

const noLimit = 1<<63 - 1

func validateRanges(c *Config) field.ErrorList {
	k := &c.Kubelet
	rows := []bounds{
		{"nodeLeaseDurationSeconds", int64(k.NodeLeaseDurationSeconds), 1, noLimit},
		{"imageGCHighThresholdPercent", int64(*k.ImageGCHighThresholdPercent), 0, 100},
		{"imageGCLowThresholdPercent", int64(*k.ImageGCLowThresholdPercent), 0, 100},
		{"oomScoreAdj", int64(*k.OOMScoreAdj), -1000, 1000},
		{"port", int64(k.Port), 1, 65535},
		{"readOnlyPort", int64(k.ReadOnlyPort), 0, 65535},
		{"healthzPort", int64(*k.HealthzPort), 0, 65535},
		{"iptablesMasqueradeBit", int64(*k.IPTablesMasqueradeBit), 0, 31},
		{"iptablesDropBit", int64(*k.IPTablesDropBit), 0, 31},
		{"eventBurst", int64(k.EventBurst), 0, noLimit},
		{"eventRecordQPS", int64(*k.EventRecordQPS), 0, noLimit},
		{"kubeAPIBurst", int64(k.KubeAPIBurst), 0, noLimit},
		{"kubeAPIQPS", int64(*k.KubeAPIQPS), 0, noLimit},
		{"registryBurst", int64(k.RegistryBurst), 0, noLimit},
		{"registryPullQPS", int64(*k.RegistryPullQPS), 0, noLimit},
		{"maxOpenFiles", k.MaxOpenFiles, 0, noLimit},
		{"maxPods", int64(k.MaxPods), 0, noLimit},
		{"podsPerCore", int64(k.PodsPerCore), 0, noLimit},
		{"podPidsLimit", *k.PodPidsLimit, -1, noLimit},
		{"nodeStatusMaxImages", int64(*k.NodeStatusMaxImages), -1, noLimit},
		{"containerLogMaxFiles", int64(*k.ContainerLogMaxFiles), 2, noLimit},
		{"containerLogMaxWorkers", int64(*k.ContainerLogMaxWorkers), 1, noLimit},
		{"evictionMaxPodGracePeriod", int64(k.EvictionMaxPodGracePeriod), 0, noLimit},
	}
	if k.Tracing != nil && k.Tracing.SamplingRatePerMillion != nil {
		rate := int64(*k.Tracing.SamplingRatePerMillion)
		rows = append(rows, bounds{"tracing.samplingRatePerMillion", rate, 0, 1000000})
	}
	var errs field.ErrorList
	for _, r := range rows {
		switch {
		case r.value >= r.low && r.value <= r.high:
		case r.high == noLimit:
			errs = append(errs, invalid(r.path, r.value, "must be at least %d", r.low))
		default:
			errs = append(errs, invalid(r.path, r.value, "must be %d to %d", r.low, r.high))
		}
	}
	return append(errs, validatePeriods(k)...)
}

func validatePeriods(k *kubeletv1beta1.KubeletConfiguration) field.ErrorList {
	rows := []struct {
		path             string
		value, low, high time.Duration
	}{
		{"syncFrequency", k.SyncFrequency.Duration, 1, noLimit},
		{"fileCheckFrequency", k.FileCheckFrequency.Duration, 1, noLimit},
		{"httpCheckFrequency", k.HTTPCheckFrequency.Duration, 1, noLimit},
		{"runtimeRequestTimeout", k.RuntimeRequestTimeout.Duration, 0, noLimit},
		{"nodeStatusUpdateFrequency", k.NodeStatusUpdateFrequency.Duration, 1, noLimit},
		{"nodeStatusReportFrequency", k.NodeStatusReportFrequency.Duration, 1, noLimit},
		{"cpuManagerReconcilePeriod", k.CPUManagerReconcilePeriod.Duration, 1, noLimit},
		{"cpuCFSQuotaPeriod", k.CPUCFSQuotaPeriod.Duration, time.Millisecond, time.Second},
		{"containerLogMonitorInterval", k.ContainerLogMonitorInterval.Duration,
			3 * time.Second, noLimit},
		{"crashLoopBackOff.maxContainerRestartPeriod",
			k.CrashLoopBackOff.MaxContainerRestartPeriod.Duration, time.Second, 300 * time.Second},
	}
	var errs field.ErrorList
	for _, r := range rows {
		switch {
		case r.value >= r.low && r.value <= r.high:
		case r.high == noLimit && r.low <= 1:
			errs = append(errs, invalid(r.path, r.value.String(), "must not be negative"))
		case r.high == noLimit:
			errs = append(errs, invalid(r.path, r.value.String(), "must be at least %s", r.low))
		default:
			errs = append(errs,
				invalid(r.path, r.value.String(), "must be %s to %s", r.low, r.high))
		}
	}
	return errs
}

func validateChoices(c *Config) field.ErrorList {
	k := &c.Kubelet
	rows := []struct{ path, value, allowed string }{
		{"authorization.mode", string(k.Authorization.Mode), "AlwaysAllow Webhook"},
		{"cgroupDriver", k.CgroupDriver, "cgroupfs systemd"},
		{"cpuManagerPolicy", k.CPUManagerPolicy, "none static"},
		{"memoryManagerPolicy", k.MemoryManagerPolicy, "None Static"},
		{"topologyManagerPolicy", k.TopologyManagerPolicy,
			"none best-effort restricted single-numa-node"},
		{"topologyManagerScope", k.TopologyManagerScope, "container pod"},
		{"hairpinMode", k.HairpinMode, "promiscuous-bridge hairpin-veth none"},
		{"configMapAndSecretChangeDetectionStrategy",
			string(k.ConfigMapAndSecretChangeDetectionStrategy), "Watch Cache Get"},
		{"imagePullCredentialsVerificationPolicy",
			string(k.ImagePullCredentialsVerificationPolicy), "NeverVerify " +
				"NeverVerifyPreloadedImages NeverVerifyAllowlistedImages AlwaysVerify"},
		{"memoryReservationPolicy", string(k.MemoryReservationPolicy), "None TieredReservation"},
	}
	if k.MemorySwap.SwapBehavior != "" {
		rows = append(rows, struct{ path, value, allowed string }{
			"memorySwap.swapBehavior", k.MemorySwap.SwapBehavior, "NoSwap LimitedSwap"})
	}
	var errs field.ErrorList
	for _, r := range rows {
		if allowed := strings.Fields(r.allowed); !slices.Contains(allowed, r.value) {
			errs = append(errs, field.NotSupported(path(r.path), r.value, allowed))
		}
	}
	return errs
}

func validateServer(c *Config) field.ErrorList {
	k := &c.Kubelet
	var errs field.ErrorList
	for at, address := range map[string]string{
		"address": k.Address, "healthzBindAddress": k.HealthzBindAddress,
	} {
		if net.ParseIP(address) == nil {
			errs = append(errs, invalid(at, address, "must be an IP address"))
		}
	}
	for i, address := range k.ClusterDNS {
		if net.ParseIP(address) == nil {
			errs = append(errs, field.Invalid(field.NewPath("clusterDNS").Index(i), address,
				"must be an IP address"))
		}
	}
	if _, err := cliflag.TLSVersion(k.TLSMinVersion); err != nil {
		errs = append(errs, field.NotSupported(path("tlsMinVersion"), k.TLSMinVersion,
			cliflag.TLSPossibleVersions()))
	}
	if _, err := cliflag.TLSCipherSuites(k.TLSCipherSuites); err != nil {
		errs = append(errs, invalid("tlsCipherSuites", k.TLSCipherSuites, "%s", err))
	}
	if _, err := cliflag.TLSCurvePreferences(k.TLSCurvePreferences); err != nil {
		errs = append(errs, invalid("tlsCurvePreferences", k.TLSCurvePreferences, "%s", err))
	}
	if k.ServerTLSBootstrap && !c.Gates.Enabled("RotateKubeletServerCertificate") {
		errs = append(errs, forbidden("serverTLSBootstrap",
			"needs feature gate RotateKubeletServerCertificate"))
	}
	if *k.EnableSystemLogQuery && !*k.EnableSystemLogHandler {
		errs = append(errs, forbidden("enableSystemLogQuery", "needs enableSystemLogHandler"))
	}
	return errs
}

func validateSources(c *Config) field.ErrorList {
	k := &c.Kubelet
	var errs field.ErrorList
	if k.StaticPodURL != "" {
		u, err := url.Parse(k.StaticPodURL)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			errs = append(errs, invalid("staticPodURL", k.StaticPodURL,
				"must be an http or https URL"))
		}
	}
	if dir := k.PodLogsDir; !filepath.IsAbs(dir) || filepath.Clean(dir) != dir || !ascii(dir) {
		errs = append(errs, invalid("podLogsDir", dir,
			"must be an absolute path without . and .., in ASCII"))
	}
	if k.RunOnce {
		errs = append(errs, forbidden("runOnce", "run-once mode is not supported"))
	}
	return errs
}

func validateImages(c *Config) field.ErrorList {
	k := &c.Kubelet
	var errs field.ErrorList
	for at, endpoint := range map[string]string{
		"containerRuntimeEndpoint": k.ContainerRuntimeEndpoint,
		"imageServiceEndpoint":     k.ImageServiceEndpoint,
	} {
		if endpoint != "" && !isSocket(endpoint) {
			errs = append(errs, invalid(at, endpoint,
				"must be unix:///PATH, such as unix:///run/containerd/containerd.sock"))
		}
	}
	if *k.ImageGCLowThresholdPercent >= *k.ImageGCHighThresholdPercent {
		errs = append(errs, invalid("imageGCLowThresholdPercent", *k.ImageGCLowThresholdPercent,
			"must be less than imageGCHighThresholdPercent, %d", *k.ImageGCHighThresholdPercent))
	}
	oldest := k.ImageMaximumGCAge.Duration
	if oldest != 0 && oldest <= k.ImageMinimumGCAge.Duration {
		errs = append(errs, invalid("imageMaximumGCAge", oldest.String(),
			"must be 0 or more than imageMinimumGCAge, %s", k.ImageMinimumGCAge.Duration))
	}
	if n := k.MaxParallelImagePulls; n != nil {
		switch {
		case *n < 1:
			errs = append(errs, invalid("maxParallelImagePulls", *n, "must be at least 1"))
		case *n > 1 && *k.SerializeImagePulls:
			errs = append(errs, invalid("maxParallelImagePulls", *n,
				"must be 1 when serializeImagePulls is true"))
		}
	}
	if len(k.PreloadedImagesVerificationAllowlist) > 0 &&
		k.ImagePullCredentialsVerificationPolicy != kubeletv1beta1.NeverVerifyAllowlistedImages {
		errs = append(errs, forbidden("preloadedImagesVerificationAllowlist",
			"needs imagePullCredentialsVerificationPolicy NeverVerifyAllowlistedImages"))
	}
	return errs
}

// isSocket takes a bare path too, as the kubelet does.
func isSocket(endpoint string) bool {
	u, err := url.Parse(endpoint)
	return err == nil && (u.Scheme == "unix" || u.Scheme == "") && u.Host == "" &&
		filepath.IsAbs(u.Path)
}

func validateLogs(c *Config) field.ErrorList {
	size, err := resource.ParseQuantity(c.Kubelet.ContainerLogMaxSize)
	if err != nil || size.Sign() <= 0 {
		return field.ErrorList{invalid("containerLogMaxSize", c.Kubelet.ContainerLogMaxSize,
			`must be a quantity such as "10Mi"`)}
	}
	return nil
}

func validateOptions(c *Config) field.ErrorList {
	var errs field.ErrorList
	if p := c.Cluster.Provider; p != "" && p != "external" {
		errs = append(errs, field.NotSupported(path("--cloud-provider"), p, []string{"external"}))
	}
	if c.DeviceAdmissionWait < 0 {
		errs = append(errs, invalid("--device-admission-wait", c.DeviceAdmissionWait.String(),
			"must not be negative"))
	}
	errs = append(errs, c.DevicePlugins.problems()...)
	if c.RootDir == "" {
		errs = append(errs, field.Required(path("--root-dir"), "give a directory"))
	}
	if name := strings.ToLower(strings.TrimSpace(c.HostnameOverride)); name != "" {
		for _, problem := range validation.IsDNS1123Subdomain(name) {
			errs = append(errs, invalid("--hostname-override", name, "%s", problem))
		}
	}
	if c.NodeIP != "" {
		for ip := range strings.SplitSeq(c.NodeIP, ",") {
			if net.ParseIP(ip) == nil {
				errs = append(errs, invalid("--node-ip", ip, "must be an IP address"))
			}
		}
	}
	return append(errs, metav1validation.ValidateLabels(c.NodeLabels, path("--node-labels"))...)
}

func ascii(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' })
}

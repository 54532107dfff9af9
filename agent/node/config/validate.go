package config

import (
	"fmt"
	"net/url"
	"path/filepath"
	"reflect"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	cliflag "k8s.io/component-base/cli/flag"
	logsapi "k8s.io/component-base/logs/api/v1"
	tracingapi "k8s.io/component-base/tracing/api/v1"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/numalet/numalet/internal/ownlabel"
	"github.com/numalet/numalet/internal/quantity"
)

// validate lists all errors in one line, with the path of each field.
func validate(c *Config) error {
	var p problems
	for _, check := range []func(*Config, *problems){
		validateFields, validateServer, validateSources, validateImages, validateLogs,
		validateNode, validateAllocatable, validateReserved, validateCPUManager,
		validateMemory, validateTopology, validateEviction, validateShutdown, validateSysctls,
		validateOptions,
	} {
		check(c, &p)
	}
	logging := logsapi.Validate(&c.Kubelet.Logging, c.Gates, field.NewPath("logging"))
	p.ErrorList = append(p.ErrorList, logging...)
	return p.err()
}

// validateFields checks fields that do not depend on others.
func validateFields(c *Config, p *problems) {
	root, accepted := reflect.ValueOf(&c.Kubelet).Elem(), table[limits](limitsYAML)
	for at, words := range accepted.Words {
		p.choose(at, fieldAt(root, at).String(), words...)
	}
	for at, bounds := range accepted.Numbers {
		n := reflect.Indirect(fieldAt(root, at)).Int()
		if want := outside(n, bounds[0], bounds[1]); want != "" {
			p.invalid(at, n, "%s", want)
		}
	}
	for at, bounds := range accepted.Periods {
		d := reflect.Indirect(fieldAt(root, at)).Interface().(metav1.Duration)
		want := outside(d.Duration, bounds[0].Duration, bounds[1].Duration)
		if want != "" {
			p.invalid(at, d, "%s", want)
		}
	}
	p.ErrorList = append(p.ErrorList, tracingapi.ValidateTracingConfiguration(c.Kubelet.Tracing,
		c.Gates, field.NewPath("tracing"))...)
	if of := c.Kubelet.ShowHiddenMetricsForVersion; of != "" && of != previousVersion() {
		p.invalid("showHiddenMetricsForVersion", of, "must be omitted or have the value '%s'; only the "+
			"previous minor version is allowed", previousVersion())
	}
	if swap := c.Kubelet.MemorySwap.SwapBehavior; swap != "" {
		p.choose("memorySwap.swapBehavior", swap, "NoSwap", "LimitedSwap")
	}
}

// outside says what value is expected if value is not between low and high; high 0 is no bound.
func outside[T ~int64](value, low, high T) (want string) {
	switch {
	case value >= low && (high == 0 || value <= high):
		return ""
	case high != 0:
		return fmt.Sprintf("must be %v to %v", low, high)
	case low == 1:
		return "must be more than 0"
	}
	return fmt.Sprintf("must be at least %v", low)
}

func validateServer(c *Config, p *problems) {
	k := &c.Kubelet
	p.address("address", k.Address)
	p.address("healthzBindAddress", k.HealthzBindAddress)
	for i, address := range k.ClusterDNS {
		p.address(fmt.Sprintf("clusterDNS[%d]", i), address)
	}
	if _, err := cliflag.TLSVersion(k.TLSMinVersion); err != nil {
		p.choose("tlsMinVersion", k.TLSMinVersion, cliflag.TLSPossibleVersions()...)
	}
	if _, err := cliflag.TLSCipherSuites(k.TLSCipherSuites); err != nil {
		p.invalid("tlsCipherSuites", k.TLSCipherSuites, "%s", err)
	}
	if _, err := cliflag.TLSCurvePreferences(k.TLSCurvePreferences); err != nil {
		p.invalid("tlsCurvePreferences", k.TLSCurvePreferences, "%s", err)
	}
	p.forbid(k.ServerTLSBootstrap && !c.Gates.Enabled("RotateKubeletServerCertificate"),
		"serverTLSBootstrap", "needs feature gate RotateKubeletServerCertificate")
	p.forbid(*k.EnableSystemLogQuery && !*k.EnableSystemLogHandler, "enableSystemLogQuery",
		"needs enableSystemLogHandler")
	if k.ReadOnlyPort > 0 && k.ReadOnlyPort == k.Port { // both listen on address
		p.invalid("readOnlyPort", k.ReadOnlyPort, "must not be that of port")
	}
}

func validateSources(c *Config, p *problems) {
	k := &c.Kubelet
	if k.StaticPodURL != "" {
		u, err := url.Parse(k.StaticPodURL)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			p.invalid("staticPodURL", k.StaticPodURL, "must be an http or https URL")
		}
	}
	if dir := k.PodLogsDir; !filepath.IsAbs(dir) || filepath.Clean(dir) != dir || !ascii(dir) {
		p.invalid("podLogsDir", dir, "must be an absolute path without . and .., in ASCII")
	}
	p.forbid(k.RunOnce, "runOnce", "run-once mode is not supported")
	const longest = "crashLoopBackOff.maxContainerRestartPeriod"
	usual := defaults().CrashLoopBackOff.MaxContainerRestartPeriod.Duration
	p.forbid(!c.Enabled("KubeletCrashLoopBackOffMax") &&
		k.CrashLoopBackOff.MaxContainerRestartPeriod.Duration != usual,
		longest, "needs feature gate KubeletCrashLoopBackOffMax")
}

func validateImages(c *Config, p *problems) {
	k := &c.Kubelet
	for at, endpoint := range map[string]string{
		"containerRuntimeEndpoint": k.ContainerRuntimeEndpoint,
		"imageServiceEndpoint":     k.ImageServiceEndpoint,
	} {
		if endpoint != "" && !isSocket(endpoint) {
			p.invalid(at, endpoint,
				"must be unix:///PATH, such as unix:///run/containerd/containerd.sock")
		}
	}
	if *k.ImageGCLowThresholdPercent >= *k.ImageGCHighThresholdPercent {
		p.invalid("imageGCLowThresholdPercent", *k.ImageGCLowThresholdPercent,
			"must be less than imageGCHighThresholdPercent, %d", *k.ImageGCHighThresholdPercent)
	}
	oldest := k.ImageMaximumGCAge.Duration
	if oldest != 0 && oldest <= k.ImageMinimumGCAge.Duration {
		p.invalid("imageMaximumGCAge", oldest.String(),
			"must be 0 or more than imageMinimumGCAge, %s", k.ImageMinimumGCAge.Duration)
	}
	if n := k.MaxParallelImagePulls; n != nil {
		switch {
		case *n < 1:
			p.invalid("maxParallelImagePulls", *n, "must be at least 1")
		case *n > 1 && *k.SerializeImagePulls:
			p.invalid("maxParallelImagePulls", *n, "must be 1 when serializeImagePulls is true")
		}
	}
	const file, dir = "--image-credential-provider-config", "--image-credential-provider-bin-dir"
	p.forbid(c.Cluster.CredentialProviderConfig != "" && c.Cluster.CredentialProviderDir == "",
		file, "needs "+dir)
	p.forbid(c.Cluster.CredentialProviderDir != "" && c.Cluster.CredentialProviderConfig == "",
		dir, "needs "+file)
	p.forbid(len(k.PreloadedImagesVerificationAllowlist) > 0 &&
		k.ImagePullCredentialsVerificationPolicy != kubeletv1beta1.NeverVerifyAllowlistedImages,
		"preloadedImagesVerificationAllowlist",
		"needs imagePullCredentialsVerificationPolicy NeverVerifyAllowlistedImages")
}

// isSocket accepts a plain path too, as the kubelet does.
func isSocket(endpoint string) bool {
	u, err := url.Parse(endpoint)
	return err == nil && (u.Scheme == "unix" || u.Scheme == "") && u.Host == "" &&
		filepath.IsAbs(u.Path)
}

func validateLogs(c *Config, p *problems) {
	size, err := quantity.Parse(c.Kubelet.ContainerLogMaxSize)
	if err != nil || size.Sign() <= 0 {
		p.invalid("containerLogMaxSize", c.Kubelet.ContainerLogMaxSize,
			`must be a quantity such as "10Mi"`)
	}
}

func validateOptions(c *Config, p *problems) {
	if c.Cluster.Provider != "" {
		p.choose("--cloud-provider", c.Cluster.Provider, "external")
	}
	if c.DevicePlugins.Wait < 0 {
		p.invalid("--device-admission-wait", c.DevicePlugins.Wait.String(), "must not be negative")
	}
	c.DevicePlugins.check(p)
	c.Placement.check(p)
	c.Failures.check(p)
	p.forbid(c.Placement.IsolatedCPUs != "" && c.Placement.IsolatedCPUs != isolatedNone &&
		c.Kubelet.CPUManagerPolicy != "static",
		"--"+isolatedFlag, "only cpuManagerPolicy static gives out CPUs; set that too")
	p.forbid(c.Placement.DriverCPUs != "" && c.Kubelet.CPUManagerPolicy != "static",
		"--"+driverCPUsFlag, "it needs cpuManagerPolicy static; under the policy none drivers of "+
			"resource claims may hand out all CPUs")
	p.forbid(c.Placement.CPUDriver && c.Kubelet.CPUManagerPolicy != "static", "--"+cpuDriverFlag,
		"only cpuManagerPolicy static gives out CPUs; set that too")
	if c.RootDir == "" {
		p.required("--root-dir", "give a directory")
	}
	if name := strings.ToLower(strings.TrimSpace(c.Node.HostnameOverride)); name != "" {
		for _, problem := range validation.IsDNS1123Subdomain(name) {
			p.invalid("--hostname-override", name, "%s", problem)
		}
	}
	validateNodeIP(c, p)
	for key := range c.Node.Labels {
		p.forbid(!ownlabel.Is(key), "--node-labels", key+" is not for a node to set: in the namespaces "+
			"of kubernetes.io and k8s.io it may have those of kubelet.kubernetes.io and "+
			"node.kubernetes.io, and "+strings.Join(ownlabel.WellKnown(), ", "))
	}
	labels := metav1validation.ValidateLabels(c.Node.Labels, field.NewPath("--node-labels"))
	p.ErrorList = append(p.ErrorList, labels...)
}

func ascii(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' })
}

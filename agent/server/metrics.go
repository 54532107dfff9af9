package server

import (
	"github.com/prometheus/client_golang/prometheus/collectors"
	"k8s.io/component-base/metrics"

	"github.com/numalet/numalet/agent/version"
)

// NewRegistry is a registry with the metrics of the process itself: go_*, process_* and
// kubernetes_build_info.
func NewRegistry() metrics.KubeRegistry {
	r := metrics.NewKubeRegistry()
	r.RawMustRegister(
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		collectors.NewGoCollector(),
	)
	r.RegisterMetaMetrics()
	registerBuildInfo(r)
	return r
}

// registerBuildInfo says what --version=raw says.
func registerBuildInfo(r metrics.KubeRegistry) {
	v := version.Get()
	build := metrics.NewGaugeVec(&metrics.GaugeOpts{
		Name: "kubernetes_build_info",
		Help: "The build: always 1, with the version, the commit and the toolchain as labels.",

		StabilityLevel: metrics.BETA,
	}, []string{"major", "minor", "git_version", "git_commit", "git_tree_state", "build_date",
		"go_version", "compiler", "platform"})
	r.MustRegister(build)
	build.WithLabelValues(v.Major, v.Minor, v.GitVersion, v.GitCommit, v.GitTreeState, v.BuildDate,
		v.GoVersion, v.Compiler, v.Platform).Set(1)
}

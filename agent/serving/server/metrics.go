package server

import (
	"slices"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	// Libraries count requests to the API server and work queues in the legacy registry.
	_ "k8s.io/component-base/metrics/prometheus/restclient"
	_ "k8s.io/component-base/metrics/prometheus/workqueue"

	"github.com/numalet/numalet/internal/version"
)

// NewRegistry returns a registry with kubernetes_build_info.
func NewRegistry() metrics.KubeRegistry {
	r := metrics.NewKubeRegistry()
	r.RegisterMetaMetrics()
	registerBuildInfo(r)
	return r
}

// withLibraries gathers a registry's metrics and those that libraries keep for the whole process:
// go_*, process_*, rest_client_*, workqueue_* and more. If both have a name, the registry's counts.
type withLibraries struct{ metrics.Gatherer }

// Gather returns all metrics, sorted by name.
func (w withLibraries) Gather() ([]*dto.MetricFamily, error) {
	own, err := w.Gatherer.Gather()
	if err != nil {
		return own, err
	}
	names := sets.New[string]()
	for _, f := range own {
		names.Insert(f.GetName())
	}
	others, err := legacyregistry.DefaultGatherer.Gather()
	for _, f := range others {
		if !names.Has(f.GetName()) {
			own = append(own, f)
		}
	}
	slices.SortFunc(own, func(a, b *dto.MetricFamily) int {
		return strings.Compare(a.GetName(), b.GetName())
	})
	return own, err
}

// registerBuildInfo registers what --version=raw prints.
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

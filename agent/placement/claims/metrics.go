package claims

import (
	"strconv"
	"time"

	"k8s.io/component-base/metrics"

	"github.com/numalet/numalet/internal/metric"
)

// The kubelet's names of operations.
const (
	opPrepare   = "PrepareResources"
	opUnprepare = "UnprepareResources"
)

// anyDriver stands for all drivers in a metric.
const anyDriver = "<any>"

// meters are the kubelet's metrics of claims.
type meters struct {
	took                 *metrics.HistogramVec
	skipped, skippedEnds *metrics.CounterVec // calls to prepare, to unprepare
}

func newMeters(registry metrics.KubeRegistry, all func() records) (*meters, error) {
	var set metric.Set
	m := &meters{
		took: set.Histograms("dra_operations_duration_seconds", "Latency histogram in seconds for "+
			"the duration of handling all ResourceClaims referenced by a pod when the pod starts or "+
			"stops. Identified by the name of the operation (PrepareResources or UnprepareResources) "+
			"and separated by the success of the operation. The number of failed operations is "+
			"provided through the histogram's overall count.",
			metrics.ExponentialBucketsRange(.1, 40, 15), "operation_name", "is_error"),
		skipped: set.Counters("dra_node_prepare_skips_total", "Cumulative number of times "+
			"NodePrepareResources gRPC calls were skipped due to SkipNodeOperations.", "driver_name"),
		skippedEnds: set.Counters("dra_node_unprepare_skips_total", "Cumulative number of times "+
			"NodeUnprepareResources gRPC calls were skipped due to SkipNodeOperations.", "driver_name"),
	}
	set.Read("dra_resource_claims_in_use", "The number of ResourceClaims that are currently in use "+
		"on the node, by driver name (driver_name label value) and across all drivers (special value "+
		"<any> for driver_name). Note that the sum of all by-driver counts is not the total number of "+
		"in-use ResourceClaims because the same ResourceClaim might use devices from different "+
		"drivers. Instead, use the count for the <any> driver_name.", []string{"driver_name"},
		func(tell metric.Tell) {
			for driver, n := range inUse(all()) {
				tell(float64(n), driver)
			}
		})
	if registry == nil {
		return m, nil
	}
	return m, set.Register(registry)
}

// inUse counts the prepared claims by driver.
func inUse(all records) map[string]int {
	out := map[string]int{anyDriver: 0}
	for _, r := range all {
		if !r.prepared() {
			continue
		}
		out[anyDriver]++
		for _, d := range r.Drivers {
			out[d.Name]++
		}
	}
	return out
}

func (m *meters) handled(operation string, began time.Time, err error) {
	m.took.WithLabelValues(operation, strconv.FormatBool(err != nil)).
		Observe(time.Since(began).Seconds())
}

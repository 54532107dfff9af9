package manifest

import (
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/numalet/numalet/internal/quantity"
)

func validateResources(r *v1.ResourceRequirements, at place) {
	limits, requests := at.child("limits"), at.child("requests")
	validateAmounts(r.Limits, limits)
	validateAmounts(r.Requests, requests)
	for _, name := range slices.Sorted(maps.Keys(r.Requests)) {
		request, entry := r.Requests[name], requests.key(string(name))
		limit, limited := r.Limits[name]
		switch {
		case !limited && !overcommittable(name):
			limits.key(string(name)).required(
				"must be given and equal to the request, since it cannot be overcommitted")
		case limited && !overcommittable(name) && request.Cmp(limit) != 0:
			entry.invalid(request.String(),
				"must be equal to the limit of %s, since it cannot be overcommitted", &limit)
		case limited && request.Cmp(limit) > 0:
			entry.invalid(request.String(), "must be less than or equal to %s limit of %s", name, &limit)
		}
	}
	huge := slices.ContainsFunc(slices.Collect(maps.Keys(r.Limits)), isHugePages)
	_, cpu := r.Requests[v1.ResourceCPU]
	_, memory := r.Requests[v1.ResourceMemory]
	if huge && !cpu && !memory {
		limits.forbid("huge pages need a request for cpu or memory")
	}
}

func validateAmounts(list v1.ResourceList, at place) {
	for _, name := range slices.Sorted(maps.Keys(list)) {
		amount, at := list[name], at.key(string(name))
		validateResourceName(name, at)
		if !validateAmount(name, amount, at) {
			continue
		}
		if extended(name) &&
			amount.Cmp(*resource.NewQuantity(amount.Value(), resource.DecimalSI)) != 0 {
			at.invalid(amount.String(), "must be an integer")
		}
		if isHugePages(name) {
			validateHugePages(name, amount, at)
		}
	}
}

// validateResourceName allows the node's own resources and names with a domain.
func validateResourceName(name v1.ResourceName, at place) {
	switch {
	case name == v1.ResourceCPU, name == v1.ResourceMemory, name == v1.ResourceEphemeralStorage,
		isHugePages(name):
		return
	case !strings.Contains(string(name), "/"):
		at.invalid(string(name), "must be cpu, memory, "+
			"ephemeral-storage, hugepages-<size> or the full name of a resource, example.com/gpu")
	case strings.HasPrefix(string(name), v1.DefaultResourceRequestsPrefix):
		// Quotas name requests requests.<name>, so a resource of that name would be ambiguous.
		at.invalid(string(name), `must not begin with "requests."`)
	default:
		at.texts(string(name), validation.IsQualifiedName(string(name)))
	}
}

func validateHugePages(name v1.ResourceName, amount resource.Quantity, at place) {
	switch size, ok := quantity.PageSize(name); {
	case !ok:
		at.invalid(string(name), "must end in a page size, such as hugepages-2Mi")
	case amount.Value()%size != 0:
		at.invalid(amount.String(), "must be a multiple of the page size %s",
			strings.TrimPrefix(string(name), v1.ResourceHugePagesPrefix))
	}
}

func isHugePages(name v1.ResourceName) bool {
	return strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix)
}

// extended reports whether it is a resource of device plugins.
func extended(name v1.ResourceName) bool {
	domain, _, ok := strings.Cut(string(name), "/")
	return ok && domain != "kubernetes.io" && !strings.HasSuffix(domain, ".kubernetes.io")
}

// overcommittable reports whether a limit above the request makes sense: use can be reduced.
func overcommittable(name v1.ResourceName) bool {
	return !isHugePages(name) && !extended(name)
}

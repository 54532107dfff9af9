package source

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/numalet/numalet/topology/quantity"
)

func validateResources(r *v1.ResourceRequirements, at *field.Path) field.ErrorList {
	limits, requests := at.Child("limits"), at.Child("requests")
	errs := validateAmounts(r.Limits, limits)
	errs = append(errs, validateAmounts(r.Requests, requests)...)
	for _, name := range slices.Sorted(maps.Keys(r.Requests)) {
		request, entry := r.Requests[name], requests.Key(string(name))
		limit, limited := r.Limits[name]
		switch {
		case !limited && !overcommittable(name):
			errs = append(errs, field.Required(limits.Key(string(name)),
				"must be given and equal to the request, since it cannot be overcommitted"))
		case limited && !overcommittable(name) && request.Cmp(limit) != 0:
			errs = append(errs, field.Invalid(entry, request.String(), fmt.Sprintf(
				"must be equal to the limit of %s, since it cannot be overcommitted", &limit)))
		case limited && request.Cmp(limit) > 0:
			errs = append(errs, field.Invalid(entry, request.String(), fmt.Sprintf(
				"must be less than or equal to %s limit of %s", name, &limit)))
		}
	}
	huge := slices.ContainsFunc(slices.Collect(maps.Keys(r.Limits)), isHugePages)
	_, cpu := r.Requests[v1.ResourceCPU]
	_, memory := r.Requests[v1.ResourceMemory]
	if huge && !cpu && !memory {
		errs = append(errs, field.Forbidden(limits, "huge pages need a request for cpu or memory"))
	}
	return errs
}

func validateAmounts(list v1.ResourceList, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, name := range slices.Sorted(maps.Keys(list)) {
		amount, at := list[name], at.Key(string(name))
		errs = append(errs, validateResourceName(name, at)...)
		if wrong := validateAmount(name, amount, at); len(wrong) > 0 {
			errs = append(errs, wrong...)
			continue
		}
		if extended(name) &&
			amount.Cmp(*resource.NewQuantity(amount.Value(), resource.DecimalSI)) != 0 {
			errs = append(errs, field.Invalid(at, amount.String(), "must be an integer"))
		}
		if isHugePages(name) {
			errs = append(errs, validateHugePages(name, amount, at)...)
		}
	}
	return errs
}

// validateResourceName allows the resources of the node and those with a domain.
func validateResourceName(name v1.ResourceName, at *field.Path) field.ErrorList {
	switch {
	case name == v1.ResourceCPU, name == v1.ResourceMemory, name == v1.ResourceEphemeralStorage,
		isHugePages(name):
		return nil
	case !strings.Contains(string(name), "/"):
		return field.ErrorList{field.Invalid(at, string(name), "must be cpu, memory, "+
			"ephemeral-storage, hugepages-<size> or the full name of a resource, example.com/gpu")}
	case strings.HasPrefix(string(name), v1.DefaultResourceRequestsPrefix):
		// requests.<name> is how quotas name requests; as a resource it could not be told apart.
		return field.ErrorList{field.Invalid(at, string(name), `must not begin with "requests."`)}
	default:
		return texts(at, string(name), validation.IsQualifiedName(string(name)))
	}
}

func validateHugePages(name v1.ResourceName, amount resource.Quantity,
	at *field.Path) field.ErrorList {
	size, ok := quantity.PageSize(name)
	if !ok {
		return field.ErrorList{field.Invalid(at, string(name),
			"must end in a page size, such as hugepages-2Mi")}
	}
	if amount.Value()%size != 0 {
		return field.ErrorList{field.Invalid(at, amount.String(), "must be a multiple of the page "+
			"size "+strings.TrimPrefix(string(name), v1.ResourceHugePagesPrefix))}
	}
	return nil
}

func isHugePages(name v1.ResourceName) bool {
	return strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix)
}

// extended tells device plugins' resources from the node's own.
func extended(name v1.ResourceName) bool {
	domain, _, ok := strings.Cut(string(name), "/")
	return ok && domain != "kubernetes.io" && !strings.HasSuffix(domain, ".kubernetes.io")
}

// overcommittable: a limit above the request makes sense, since use can be cut back.
func overcommittable(name v1.ResourceName) bool {
	return !isHugePages(name) && !extended(name)
}

package source

import (
	"reflect"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// validateVolumes also returns the names, for the mounts to refer to.
func validateVolumes(volumes []v1.Volume, at *field.Path) (sets.Set[string], field.ErrorList) {
	var errs field.ErrorList
	names := sets.New[string]()
	for i := range volumes {
		v, at := &volumes[i], at.Index(i)
		if v.Name == "" {
			errs = append(errs, field.Required(at.Child("name"), "give the volume a name"))
		} else {
			errs = append(errs,
				texts(at.Child("name"), v.Name, validation.IsDNS1123Label(v.Name))...)
		}
		if names.Has(v.Name) {
			errs = append(errs, field.Duplicate(at.Child("name"), v.Name))
		}
		names.Insert(v.Name)
		if n := volumeTypes(&v.VolumeSource); n > 1 {
			errs = append(errs, field.Forbidden(at, "may not have more than one type"))
		}
		errs = append(errs, validateHostPath(v.HostPath, at.Child("hostPath"))...)
		errs = append(errs, validateEmptyDir(v.EmptyDir, at.Child("emptyDir"))...)
		if v.DownwardAPI != nil {
			errs = append(errs, validateItems(v.DownwardAPI.Items, v.DownwardAPI.DefaultMode,
				at.Child("downwardAPI"))...)
		}
		if v.Projected != nil {
			for j, source := range v.Projected.Sources {
				if source.DownwardAPI != nil {
					at := at.Child("projected", "sources").Index(j).Child("downwardAPI")
					errs = append(errs, validateItems(source.DownwardAPI.Items, nil, at)...)
				}
			}
		}
		if v.Image != nil && v.Image.Reference == "" {
			errs = append(errs, field.Required(at.Child("image", "reference"), "name the image"))
		}
	}
	return names, errs
}

// volumeTypes counts the types that are set. VolumeSource is a struct with a pointer for each.
func volumeTypes(v *v1.VolumeSource) int {
	fields, n := reflect.ValueOf(v).Elem(), 0
	for i := range fields.NumField() {
		if !fields.Field(i).IsNil() {
			n++
		}
	}
	return n
}

func validateHostPath(h *v1.HostPathVolumeSource, at *field.Path) field.ErrorList {
	if h == nil {
		return nil
	}
	errs := oneOf(at.Child("type"), *h.Type, v1.HostPathUnset, v1.HostPathDirectoryOrCreate,
		v1.HostPathDirectory, v1.HostPathFileOrCreate, v1.HostPathFile, v1.HostPathSocket,
		v1.HostPathCharDev, v1.HostPathBlockDev)
	switch {
	case h.Path == "":
		errs = append(errs, field.Required(at.Child("path"), "name a path of the host"))
	case slices.Contains(strings.Split(h.Path, "/"), ".."):
		errs = append(errs, field.Invalid(at.Child("path"), h.Path, "must not contain '..'"))
	}
	return errs
}

func validateEmptyDir(e *v1.EmptyDirVolumeSource, at *field.Path) field.ErrorList {
	if e == nil {
		return nil
	}
	var errs field.ErrorList
	if e.SizeLimit != nil {
		errs = validateAmount(v1.ResourceEphemeralStorage, *e.SizeLimit, at.Child("sizeLimit"))
	}
	if !strings.HasPrefix(string(e.Medium), string(v1.StorageMediumHugePagesPrefix)) {
		errs = append(errs, oneOf(at.Child("medium"), e.Medium, v1.StorageMediumDefault,
			v1.StorageMediumMemory, v1.StorageMediumHugePages)...)
	}
	return errs
}

func validateItems(items []v1.DownwardAPIVolumeFile, mode *int32,
	at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if mode != nil {
		errs = append(errs, between(at.Child("defaultMode"), int64(*mode), 0, 0o777)...)
	}
	for i, item := range items {
		at := at.Child("items").Index(i)
		if item.Path == "" {
			errs = append(errs, field.Required(at.Child("path"), "name a file in the volume"))
		}
		errs = append(errs, validateInside(at.Child("path"), item.Path)...)
		switch {
		case (item.FieldRef == nil) == (item.ResourceFieldRef == nil):
			errs = append(errs,
				field.Invalid(at, "", "must have one of fieldRef, resourceFieldRef"))
		case item.FieldRef != nil:
			errs = append(errs, validateFieldRef(item.FieldRef, at.Child("fieldRef"))...)
		case item.ResourceFieldRef.ContainerName == "":
			errs = append(errs, field.Required(at.Child("resourceFieldRef", "containerName"),
				"say whose resources"))
		default:
			errs = append(errs,
				validateResourceRef(item.ResourceFieldRef, at.Child("resourceFieldRef"))...)
		}
		if item.Mode != nil {
			errs = append(errs, between(at.Child("mode"), int64(*item.Mode), 0, 0o777)...)
		}
	}
	return errs
}

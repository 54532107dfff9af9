package manifest

import (
	"reflect"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
)

// validateVolumes also returns the volumes' names, to check mounts against.
func validateVolumes(volumes []v1.Volume, at place) sets.Set[string] {
	names := sets.New[string]()
	for i := range volumes {
		v, at := &volumes[i], at.index(i)
		at.child("name").named(v.Name, validation.IsDNS1123Label, "give the volume a name")
		if names.Has(v.Name) {
			at.child("name").duplicate(v.Name)
		}
		names.Insert(v.Name)
		if n := volumeTypes(&v.VolumeSource); n > 1 {
			at.forbid("may not have more than one type")
		}
		validateHostPath(v.HostPath, at.child("hostPath"))
		validateEmptyDir(v.EmptyDir, at.child("emptyDir"))
		if v.DownwardAPI != nil {
			validateItems(v.DownwardAPI.Items, v.DownwardAPI.DefaultMode, at.child("downwardAPI"))
		}
		if v.Projected != nil {
			for j, source := range v.Projected.Sources {
				if source.DownwardAPI != nil {
					at := at.child("projected", "sources").index(j).child("downwardAPI")
					validateItems(source.DownwardAPI.Items, nil, at)
				}
			}
		}
		if v.Image != nil && v.Image.Reference == "" {
			at.child("image", "reference").required("name the image")
		}
	}
	return names
}

// volumeTypes counts the types that are set; VolumeSource has a pointer for each type.
func volumeTypes(v *v1.VolumeSource) int {
	fields, n := reflect.ValueOf(v).Elem(), 0
	for i := range fields.NumField() {
		if !fields.Field(i).IsNil() {
			n++
		}
	}
	return n
}

func validateHostPath(h *v1.HostPathVolumeSource, at place) {
	if h == nil {
		return
	}
	oneOf(at.child("type"), *h.Type, v1.HostPathUnset, v1.HostPathDirectoryOrCreate,
		v1.HostPathDirectory, v1.HostPathFileOrCreate, v1.HostPathFile, v1.HostPathSocket,
		v1.HostPathCharDev, v1.HostPathBlockDev)
	switch {
	case h.Path == "":
		at.child("path").required("name a path of the host")
	case slices.Contains(strings.Split(h.Path, "/"), ".."):
		at.child("path").invalid(h.Path, "must not contain '..'")
	}
}

func validateEmptyDir(e *v1.EmptyDirVolumeSource, at place) {
	if e == nil {
		return
	}
	if e.SizeLimit != nil {
		validateAmount(v1.ResourceEphemeralStorage, *e.SizeLimit, at.child("sizeLimit"))
	}
	if !strings.HasPrefix(string(e.Medium), string(v1.StorageMediumHugePagesPrefix)) {
		oneOf(at.child("medium"), e.Medium, v1.StorageMediumDefault, v1.StorageMediumMemory,
			v1.StorageMediumHugePages)
	}
}

func validateItems(items []v1.DownwardAPIVolumeFile, mode *int32, at place) {
	if mode != nil {
		at.child("defaultMode").between(int64(*mode), 0, 0o777)
	}
	for i, item := range items {
		at := at.child("items").index(i)
		if item.Path == "" {
			at.child("path").required("name a file in the volume")
		}
		validateInside(at.child("path"), item.Path)
		switch {
		case (item.FieldRef == nil) == (item.ResourceFieldRef == nil):
			at.invalid("", "must have one of fieldRef, resourceFieldRef")
		case item.FieldRef != nil:
			validateFieldRef(item.FieldRef, at.child("fieldRef"))
		case item.ResourceFieldRef.ContainerName == "":
			at.child("resourceFieldRef", "containerName").required("say whose resources")
		default:
			validateResourceRef(item.ResourceFieldRef, at.child("resourceFieldRef"))
		}
		if item.Mode != nil {
			at.child("mode").between(int64(*item.Mode), 0, 0o777)
		}
	}
}

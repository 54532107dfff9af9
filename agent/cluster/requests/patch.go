package requests

import (
	"encoding/json"

	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// StrategicPatch returns the strategic merge patch that makes after of before. Metadata that only
// after has, such as its UID and version, makes the API server compare it with its own.
func StrategicPatch[T any](before, after T) ([]byte, error) {
	from, err := json.Marshal(before)
	if err != nil {
		return nil, err
	}
	to, err := json.Marshal(after)
	if err != nil {
		return nil, err
	}
	return strategicpatch.CreateTwoWayMergePatch(from, to, before)
}

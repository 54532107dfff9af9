package cri

import (
	"encoding/json"
	"strconv"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/internal/checksum"
)

// ContainerHash returns the value of AnnotationHash for a container spec, in lower case hex. It
// covers only the name and the image: changes of other fields do not restart a container. It equals
// the kubelet's value, so that each agent recognises what the other started.
func ContainerHash(container *v1.Container) string {
	// encoding/json writes map keys in sorted order and cannot fail on strings.
	text, _ := json.Marshal(map[string]string{"name": container.Name, "image": container.Image})
	return strconv.FormatUint(checksum.Of(text), 16)
}

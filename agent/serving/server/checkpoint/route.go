// Package checkpoint lets the runtime write a container's state to a file, from which the container
// can be restored elsewhere (KEP-2008).
package checkpoint

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/numalet/numalet/agent/serving/server"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/route"
	"github.com/numalet/numalet/topology/podspec"
)

// patience bounds how long a client may take to read the answer.
const patience = time.Minute

// Config says where containers are found, and where their checkpoints are stored.
type Config struct {
	Runtime interface {
		CheckpointContainer(context.Context, *runtimeapi.CheckpointContainerRequest) error
	}
	// Pod finds a pod by namespace and name.
	Pod func(namespace, name string) (*v1.Pod, bool)
	// Observed returns the pod as the runtime has it.
	Observed func(types.UID) (cri.Pod, bool)
	// Dir is created when needed.
	Dir string
}

// Route returns the route that makes checkpoints.
func Route(c Config) route.Route {
	handler := func(w http.ResponseWriter, r *http.Request) {
		file, refused := c.take(r)
		if refused != nil {
			refused.Answer(w)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string][]string{"items": {file}})
	}
	return route.Route{
		Method: http.MethodPost, Pattern: "/checkpoint/{namespace}/{pod}/{container}",
		Stream:  true,
		Handler: server.Long(http.HandlerFunc(handler), patience),
	}
}

// take makes a checkpoint and returns its file, or a refusal.
func (c Config) take(r *http.Request) (string, *route.Refusal) {
	namespace, name := r.PathValue("namespace"), r.PathValue("pod")
	container := r.PathValue("container")
	pod, ok := c.Pod(namespace, name)
	if !ok {
		return "", route.Refuse(http.StatusNotFound, "pod does not exist")
	}
	if spec, _ := podspec.Find(pod, container); spec == nil {
		return "", route.Refuse(http.StatusNotFound, "container %s does not exist", container)
	}
	request := &runtimeapi.CheckpointContainerRequest{}
	if all := r.URL.Query()["timeout"]; len(all) > 0 {
		var err error
		if request.Timeout, err = strconv.ParseInt(all[len(all)-1], 10, 64); err != nil {
			return "", route.Refuse(http.StatusNotFound, "cannot parse value of timeout parameter")
		}
	}
	request.Location = filepath.Join(c.Dir, fmt.Sprintf("checkpoint-%s_%s-%s-%s.tar", name,
		namespace, container, time.Now().Format(time.RFC3339)))
	if err := c.checkpoint(r.Context(), pod.UID, container, request); err != nil {
		return "", route.Refuse(http.StatusInternalServerError,
			"checkpointing of %s/%s/%s failed (%v)", namespace, name, container, err)
	}
	return request.Location, nil
}

func (c Config) checkpoint(ctx context.Context, uid types.UID, name string,
	request *runtimeapi.CheckpointContainerRequest) error {
	pod, _ := c.Observed(uid)
	container, ok := pod.Container(name)
	if !ok {
		return fmt.Errorf("container %q not found", name)
	}
	request.ContainerId = container.ID
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return err
	}
	return c.Runtime.CheckpointContainer(ctx, request)
}

package logs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/agent/serving/server"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/route"
	"github.com/numalet/numalet/topology/podspec"
)

// Config says how logs are found.
type Config struct {
	// Pod finds a pod, with its status, by namespace and name.
	Pod func(namespace, name string) (*v1.Pod, bool)
	// Observed returns the pod as the runtime has it.
	Observed func(types.UID) (cri.Pod, bool)
	// SplitStreams allows requests for only stdout or only stderr.
	SplitStreams bool
	// Patience bounds how long a client may take to read each piece.
	Patience time.Duration
}

// Route serves the logs of containers.
func Route(c Config) route.Route {
	handler := func(w http.ResponseWriter, r *http.Request) {
		wanted, log, bad := c.find(r)
		if bad != nil {
			bad.Answer(w)
			return
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		body := &counted{w: w}
		err := log.Copy(r.Context(), body, wanted)
		if errors.Is(err, fs.ErrNotExist) {
			err = errors.New("no log file of the container is there: it was removed, or nothing " +
				"was written yet")
		}
		if err != nil && body.n == 0 {
			route.Refuse(http.StatusBadRequest, "%v", err).Answer(w)
		}
	}
	return route.Route{
		Method: http.MethodGet, Pattern: "/containerLogs/{namespace}/{pod}/{container}",
		Stream:  true,
		Handler: server.Long(http.HandlerFunc(handler), c.Patience),
	}
}

// counted counts the bytes written.
type counted struct {
	w io.Writer
	n int64
}

func (c *counted) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}

// find returns the options and the log that a request asks for.
func (c Config) find(r *http.Request) (wanted Options, of Log, refused *route.Refusal) {
	o, err := query(r.URL.Query())
	if err != nil {
		return wanted, of, route.Refuse(http.StatusBadRequest,
			`{"message": "Unable to decode query."}`)
	}
	if !sane(o) {
		return wanted, of, route.Refuse(http.StatusUnprocessableEntity,
			`{"message": "Invalid request."}`)
	}
	name, container := r.PathValue("pod"), r.PathValue("container")
	pod, ok := c.Pod(r.PathValue("namespace"), name)
	if !ok {
		return wanted, of, route.Refuse(http.StatusNotFound, "pod %q does not exist", name)
	}
	if spec, _ := podspec.Find(pod, container); spec == nil {
		return wanted, of, route.Refuse(http.StatusNotFound, "container %q not found in pod %q",
			container, name)
	}
	if stream := ptr.Deref(o.Stream, v1.LogStreamAll); stream != v1.LogStreamAll &&
		!c.SplitStreams {
		return wanted, of, route.Refuse(http.StatusBadRequest, "unable to return the given log "+
			"stream: %q. Please enable PodLogsQuerySplitStreams feature gate in kubelet", stream)
	}
	if of, err = c.log(pod, container, o.Previous); err != nil {
		return wanted, of, route.Refuse(http.StatusBadRequest, "%v", err)
	}
	return options(o, time.Now()), of, nil
}

// log returns the log of a container of the pod.
func (c Config) log(pod *v1.Pod, name string, previous bool) (Log, error) {
	id, err := which(pod, name, previous)
	if err != nil {
		return Log{}, err
	}
	found, ok := c.container(pod.UID, id)
	if !ok || found.From.LogPath == "" {
		return Log{}, fmt.Errorf("unable to retrieve container logs for %s: the container runtime "+
			"has it no more", id)
	}
	return Log{
		Path: found.From.LogPath,
		Running: func() bool {
			now, ok := c.container(pod.UID, id)
			return ok && now.State == cri.ContainerRunning
		},
	}, nil
}

func (c Config) container(uid types.UID, id string) (cri.Container, bool) {
	pod, _ := c.Observed(uid)
	return pod.ContainerOf(id)
}

package streaming

import (
	"errors"
	"net/http"
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/util/proxy"
	translator "k8s.io/apiserver/pkg/util/proxy"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	cristreaming "k8s.io/cri-streaming/pkg/streaming"
	"k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	"k8s.io/streaming/pkg/httpstream/wsstream"

	"github.com/numalet/numalet/internal/route"
)

func (s *streams) exec(w http.ResponseWriter, r *http.Request) {
	s.command(w, r, "exec", func(id string, o *remotecommand.Options) (string, error) {
		out, err := s.Runtime.Exec(r.Context(), &runtimeapi.ExecRequest{
			ContainerId: id, Cmd: r.URL.Query()["command"],
			Stdin: o.Stdin, Stdout: o.Stdout, Stderr: o.Stderr, Tty: o.TTY,
		})
		return out.GetUrl(), err
	})
}

func (s *streams) attach(w http.ResponseWriter, r *http.Request) {
	s.command(w, r, "attach", func(id string, o *remotecommand.Options) (string, error) {
		out, err := s.Runtime.Attach(r.Context(), &runtimeapi.AttachRequest{
			ContainerId: id, Stdin: o.Stdin, Stdout: o.Stdout, Stderr: o.Stderr, Tty: o.TTY,
		})
		return out.GetUrl(), err
	})
}

// command connects the client to the streams whose URL open returns.
func (s *streams) command(w http.ResponseWriter, r *http.Request, subresource string,
	open func(id string, o *remotecommand.Options) (string, error)) {
	options, err := remotecommand.NewOptions(r)
	if err != nil {
		fail(w, route.Refuse(http.StatusBadRequest, "%v", err))
		return
	}
	id, err := s.container(r)
	if err != nil {
		fail(w, err)
		return
	}
	to, err := location(open(id, options))
	if err != nil {
		fail(w, err)
		return
	}
	var handler http.Handler = through(to)
	if !s.Old && wsstream.IsWebSocketRequestWithStreamCloseProtocol(r) {
		s.websockets.WithLabelValues(subresource).Inc()
		handler = translator.NewStreamTranslatorHandler(to, nil, 0, translator.Options{
			Stdin: options.Stdin, Stdout: options.Stdout, Stderr: options.Stderr,
			Tty: options.TTY,
		})
	}
	handler.ServeHTTP(&patient{w, s.Idle}, r)
}

func (s *streams) portForward(w http.ResponseWriter, r *http.Request) {
	request := &runtimeapi.PortForwardRequest{}
	tunnel := !s.Old && wsstream.IsWebSocketRequestWithTunnelingProtocol(r)
	if !tunnel {
		options, err := portforward.NewV4Options(r)
		if err != nil {
			fail(w, route.Refuse(http.StatusBadRequest, "%v", err))
			return
		}
		if options != nil {
			request.Port = options.Ports
		}
	}
	var err error
	if request.PodSandboxId, err = s.sandbox(r); err != nil {
		fail(w, err)
		return
	}
	out, err := s.Runtime.PortForward(r.Context(), request)
	to, err := location(out.GetUrl(), err)
	if err != nil {
		fail(w, err)
		return
	}
	var handler http.Handler = through(to)
	if tunnel {
		s.websockets.WithLabelValues("portforward").Inc()
		handler = translator.NewTunnelingHandler(handler)
	}
	handler.ServeHTTP(&patient{w, s.Idle}, r)
}

// run answers with the output of a command after it has ended.
func (s *streams) run(w http.ResponseWriter, r *http.Request) {
	id, err := s.container(r)
	if err != nil {
		fail(w, err)
		return
	}
	stdout, stderr, err := s.Runtime.ExecSync(r.Context(), id,
		strings.Split(r.URL.Query().Get("cmd"), " "), 0)
	if err != nil {
		fail(w, route.Refuse(http.StatusInternalServerError, "%v", err))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(stdout, stderr...)) // an error means that the client has gone
}

// location parses the URL of the runtime's streams.
func location(text string, err error) (*url.URL, error) {
	if err != nil {
		return nil, err
	}
	return url.Parse(text)
}

// through returns a proxy to the runtime for clients that upgrade their connection.
func through(to *url.URL) *proxy.UpgradeAwareHandler {
	return proxy.NewUpgradeAwareHandler(to, nil, false, true, refused{})
}

// refused answers if the runtime refuses the stream.
type refused struct{}

func (refused) Error(w http.ResponseWriter, _ *http.Request, err error) {
	http.Error(w, err.Error(), http.StatusInternalServerError)
}

// fail answers with an error; runtime errors get the corresponding status code.
func fail(w http.ResponseWriter, err error) {
	if known, ok := errors.AsType[*route.Refusal](err); ok {
		known.Answer(w)
		return
	}
	_ = cristreaming.WriteError(err, w) // an error means that the client has gone
}

package debug

import (
	"io"
	"net/http"
	"net/http/pprof"

	"k8s.io/apiserver/pkg/server/flagz"
	"k8s.io/apiserver/pkg/server/statusz"
	"k8s.io/component-base/compatibility"
	"k8s.io/component-base/logs"

	"github.com/numalet/numalet/agent/server"
	"github.com/numalet/numalet/agent/version"
)

// component is the name under which clients know what we are.
const component = "kubelet"

// maxLevel bounds what is read of a log level.
const maxLevel = 100

// Configz is the configuration in force.
func Configz(configuration any) server.Route {
	return server.JSONRoute("/configz", func() any {
		return map[string]any{"kubeletconfig": configuration}
	})
}

// Profiles are pprof's. A profile over time has to end within the server's limit, a minute.
func Profiles() []server.Route {
	out := []server.Route{
		{Method: http.MethodGet, Pattern: "/debug/pprof/", Handler: http.HandlerFunc(pprof.Index),
			Stream: true},
		{Method: http.MethodPost, Pattern: "/debug/pprof/symbol",
			Handler: http.HandlerFunc(pprof.Symbol)},
	}
	for pattern, handler := range map[string]http.HandlerFunc{
		"/debug/pprof/cmdline": pprof.Cmdline, "/debug/pprof/profile": pprof.Profile,
		"/debug/pprof/symbol": pprof.Symbol, "/debug/pprof/trace": pprof.Trace,
	} {
		out = append(out, server.Route{
			Method: http.MethodGet, Pattern: pattern, Handler: handler, Stream: true,
		})
	}
	return out
}

// LogLevel takes how much is logged: PUT a number.
func LogLevel() server.Route {
	handler := func(w http.ResponseWriter, r *http.Request) {
		level, err := io.ReadAll(io.LimitReader(r.Body, maxLevel))
		if err == nil {
			var said string
			if said, err = logs.GlogSetter(string(level)); err == nil {
				_, _ = io.WriteString(w, said) // an error means that the client is gone
				return
			}
		}
		http.Error(w, err.Error(), http.StatusBadRequest)
	}
	return server.Route{
		Method: http.MethodPut, Pattern: "/debug/flags/v", Handler: http.HandlerFunc(handler),
	}
}

// Status is statusz: the build, since when it runs, and where more is told.
func Status(paths []string) []server.Route {
	var out server.Installed
	build := compatibility.NewEffectiveVersionFromString(version.Get().GitVersion, "", "")
	statusz.Install(&out, component, statusz.NewRegistry(build, statusz.WithListedPaths(paths)))
	return out
}

// Flags is flagz: the command line's flags with their values.
func Flags(values map[string]string) []server.Route {
	var out server.Installed
	flagz.Install(&out, component, flags(values))
	return out
}

type flags map[string]string

func (f flags) GetFlagz() map[string]string { return f }

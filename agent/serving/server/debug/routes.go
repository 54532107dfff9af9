package debug

import (
	"io"
	"net/http"
	"net/http/pprof"

	"k8s.io/apiserver/pkg/server/flagz"
	"k8s.io/apiserver/pkg/server/statusz"
	"k8s.io/component-base/compatibility"
	"k8s.io/component-base/logs"

	"github.com/numalet/numalet/internal/route"
	"github.com/numalet/numalet/internal/version"
)

// component is the component name that clients expect.
const component = "kubelet"

// maxLevel bounds the body of a request for a log level, in bytes.
const maxLevel = 100

// Configz serves the configuration in force.
func Configz(configuration any) route.Route {
	return route.JSON("/configz", func() any {
		return map[string]any{"kubeletconfig": configuration}
	})
}

// Profiles serves pprof. A profile over time must end within the server's limit, a minute.
func Profiles() []route.Route {
	out := []route.Route{
		{Method: http.MethodGet, Pattern: "/debug/pprof/", Handler: http.HandlerFunc(pprof.Index),
			Stream: true},
		{Method: http.MethodPost, Pattern: "/debug/pprof/symbol",
			Handler: http.HandlerFunc(pprof.Symbol)},
	}
	for pattern, handler := range map[string]http.HandlerFunc{
		"/debug/pprof/cmdline": pprof.Cmdline, "/debug/pprof/profile": pprof.Profile,
		"/debug/pprof/symbol": pprof.Symbol, "/debug/pprof/trace": pprof.Trace,
	} {
		out = append(out, route.Route{
			Method: http.MethodGet, Pattern: pattern, Handler: handler, Stream: true,
		})
	}
	return out
}

// LogLevel sets the log level: PUT a number.
func LogLevel() route.Route {
	handler := func(w http.ResponseWriter, r *http.Request) {
		level, err := io.ReadAll(io.LimitReader(r.Body, maxLevel))
		if err == nil {
			var said string
			if said, err = logs.GlogSetter(string(level)); err == nil {
				_, _ = io.WriteString(w, said) // an error means that the client has gone
				return
			}
		}
		http.Error(w, err.Error(), http.StatusBadRequest)
	}
	return route.Route{
		Method: http.MethodPut, Pattern: "/debug/flags/v", Handler: http.HandlerFunc(handler),
	}
}

// Status serves statusz: the build, the start time, and the paths with more information.
func Status(paths []string) []route.Route {
	var out route.Installed
	build := compatibility.NewEffectiveVersionFromString(version.Get().GitVersion, "", "")
	statusz.Install(&out, component, statusz.NewRegistry(build, statusz.WithListedPaths(paths)))
	return out
}

// Flags serves flagz: the command line's flags with their values.
func Flags(values map[string]string) []route.Route {
	var out route.Installed
	flagz.Install(&out, component, flags(values))
	return out
}

type flags map[string]string

func (f flags) GetFlagz() map[string]string { return f }

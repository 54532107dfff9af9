package podresources

import (
	"net/http"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/numalet/numalet/agent/server"
)

// Routes serve the answers of List and GetAllocatableResources as JSON, for clients that can only
// use HTTP.
func (s *Server) Routes() []server.Route {
	return []server.Route{
		route("/podresources", func() proto.Message {
			return &podresourcesv1.ListPodResourcesResponse{PodResources: s.feed.refresh().list()}
		}),
		route("/podresources/allocatable", func() proto.Message {
			return s.feed.refresh().from.allocatable()
		}),
	}
}

func route(pattern string, message func() proto.Message) server.Route {
	return server.Route{Method: http.MethodGet, Pattern: pattern,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			text, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(message())
			if err != nil {
				http.Error(w, "encode answer: "+err.Error(), http.StatusInternalServerError)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(text) // an error means that the client has gone
		})}
}

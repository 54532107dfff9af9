package podresources

import (
	"net/http"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/numalet/numalet/internal/route"
)

// Routes serve the answers of List and GetAllocatableResources as JSON, for clients that can only
// use HTTP.
func (s *Server) Routes() []route.Route {
	return []route.Route{
		answered("/podresources", func() proto.Message {
			return &podresourcesv1.ListPodResourcesResponse{PodResources: s.feed.refresh().list()}
		}),
		answered("/podresources/allocatable", func() proto.Message {
			return s.feed.refresh().from.allocatable()
		}),
	}
}

func answered(pattern string, message func() proto.Message) route.Route {
	return route.Get(pattern, func(w http.ResponseWriter, _ *http.Request) {
		text, err := protojson.MarshalOptions{EmitDefaultValues: true}.Marshal(message())
		route.Answer(w, text, err)
	})
}

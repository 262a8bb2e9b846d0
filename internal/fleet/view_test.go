package fleet

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cdc-outbox/cdc-outbox/internal/fleet/placement"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

// Members with the same pipelines and specifications have the same file, in any order.
func TestAViewTellsFilesApart(t *testing.T) {
	a, b, changed := placement.Offer{Pipeline: "a", Spec: "1"}, placement.Offer{Pipeline: "b", Spec: "1"}, placement.Offer{Pipeline: "b", Spec: "2"}
	var found kmsg.DescribeGroupsResponseGroup
	for name, offers := range map[string][]placement.Offer{"first": {a, b}, "second": {b, a}, "newer": {a, changed}, "fewer": {a}} {
		found.Members = append(found.Members, kmsg.DescribeGroupsResponseGroupMember{
			ProtocolMetadata: must.Get(encode(announcement{Member: placement.Member{Name: name, Offers: offers}}))(t),
			MemberAssignment: must.Get(encode(assignment{}))(t),
		})
	}
	files := map[string]string{}
	for _, m := range must.Get(view(found))(t).Members {
		files[m.Name] = m.File
	}
	if files["first"] != files["second"] || files["first"] == files["newer"] || files["first"] == files["fewer"] || files["newer"] == files["fewer"] {
		t.Errorf("the files are %v", files)
	}
}

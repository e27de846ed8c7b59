package crash

import (
	awsemulator "kamino.dev/kamino/aws/emulator"
)

// awsShapes are the worlds on AWS whose undisturbed runs are disturbed.
func awsShapes() []Shape {
	group := &awsemulator.Group{}
	return append([]Shape{
		{Name: "first day", NewNodes: 1, Group: group},
		{Name: "machine stays on", NewNodes: 1, Mute: true, Group: group},
		{Name: "fifth day", NewNodes: 1, Old: 4, Group: group},
		{Name: "with a canary", NewNodes: 1, Prove: true, Group: group},
		{Name: "by number", NewNodes: 1, Group: &awsemulator.Group{Version: "1"}},
	}, moveShapes(group)...)
}

// onAWS are cases of AWS that are no call's: pools that must not be touched.
func (e *enumeration) onAWS(g *Golden) {
	for name, group := range map[string]awsemulator.Group{
		"an instance refresh":              {Refresh: "InProgress"},
		"a warm pool":                      {Warm: 1},
		"a launch configuration":           {Configuration: "old"},
		"a root in the instance store":     {InstanceStore: true},
		"Windows":                          {Platform: "Windows"},
		"a product of the Marketplace":     {ProductCode: "abc"},
		"instances that AWS manages":       {Operator: "eks.amazonaws.com"},
		"the latest version":               {Version: "$Latest"},
		"as many instances as the minimum": {Min: 3},
	} {
		shape := g.Shape
		shape.Group = &group
		e.cases = append(e.cases, &Case{Name: "S0/15 " + name + " is refused", Cell: Cell{"S0", "15"}, Refused: true,
			Golden: &Golden{Shape: shape, Digest: g.Digest}})
	}
}

package notify

import (
	"maps"
	"slices"

	"github.com/nicholas-fedor/shoutrrr/pkg/services/chat/discord"
	"github.com/nicholas-fedor/shoutrrr/pkg/services/chat/googlechat"
	"github.com/nicholas-fedor/shoutrrr/pkg/services/chat/mattermost"
	"github.com/nicholas-fedor/shoutrrr/pkg/services/chat/rocketchat"
	"github.com/nicholas-fedor/shoutrrr/pkg/services/chat/slack"
	"github.com/nicholas-fedor/shoutrrr/pkg/services/chat/teams"
	"github.com/nicholas-fedor/shoutrrr/pkg/services/chat/telegram"
	"github.com/nicholas-fedor/shoutrrr/pkg/services/chat/zulip"
	"github.com/nicholas-fedor/shoutrrr/pkg/services/incident/opsgenie"
	"github.com/nicholas-fedor/shoutrrr/pkg/services/incident/pagerduty"
	"github.com/nicholas-fedor/shoutrrr/pkg/services/push/gotify"
	"github.com/nicholas-fedor/shoutrrr/pkg/services/push/ntfy"
	"github.com/nicholas-fedor/shoutrrr/pkg/services/push/pushover"
	"github.com/nicholas-fedor/shoutrrr/pkg/types"
)

// services are the services of shoutrrr that execute no templates. With one that does (generic, smtp),
// or with shoutrrr's router, the linker keeps each method of each type of the clouds' SDKs: 13 MB
// (docs/notes/0016-what-a-release-is-made-of.md). The service generic is Kamino's own.
var services = map[string]func() types.Service{
	"discord":    func() types.Service { return &discord.Service{} },
	"googlechat": func() types.Service { return &googlechat.Service{} },
	"gotify":     func() types.Service { return &gotify.Service{} },
	"mattermost": func() types.Service { return &mattermost.Service{} },
	"ntfy":       func() types.Service { return &ntfy.Service{} },
	"opsgenie":   func() types.Service { return &opsgenie.Service{} },
	"pagerduty":  func() types.Service { return &pagerduty.Service{} },
	"pushover":   func() types.Service { return &pushover.Service{} },
	"rocketchat": func() types.Service { return &rocketchat.Service{} },
	"slack":      func() types.Service { return &slack.Service{} },
	"teams":      func() types.Service { return &teams.Service{} },
	"telegram":   func() types.Service { return &telegram.Service{} },
	"zulip":      func() types.Service { return &zulip.Service{} },
}

// Services are the names of those besides generic.
func Services() []string { return slices.Sorted(maps.Keys(services)) }

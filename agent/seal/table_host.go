package seal

func platformRules() []Rule {
	const group = "Platform agents"
	return []Rule{
		{ID: "cloud-init", Group: group, Action: Remove, Phase: Donor, Secret: true,
			Paths: []string{"/var/lib/cloud/data/*", "/var/lib/cloud/instance", "/var/lib/cloud/instances/*", "/var/lib/cloud/sem/*",
				"/var/lib/cloud/handlers/*", "/var/lib/cloud/scripts/*/*"},
			Why: "custom data with its secrets, and the marker reported_ready, which makes a clone wait for a reprovisioning that never comes"},
		{ID: "waagent", Group: group, Action: Remove, Phase: Donor, Secret: true, Paths: []string{"/var/lib/waagent/*", "/var/lib/waagent/.[a-z]*"},
			Keep: []string{"/var/lib/waagent/WALinuxAgent-*", "/var/lib/waagent/*-[0-9]*.[0-9]*"},
			Why:  "transport and certificate keys, ovf-env.xml with password and custom data, goal states; the agent's and extensions' programs stay"},
		{ID: "extensions", Group: group, Action: Remove, Phase: Donor, Secret: true,
			Paths: []string{"/var/lib/waagent/*-[0-9]*.[0-9]*/status", "/var/lib/waagent/*-[0-9]*.[0-9]*/config",
				"/var/lib/waagent/*-[0-9]*.[0-9]*/mrseq", "/var/lib/waagent/*-[0-9]*.[0-9]*/heartbeat.log", "/var/lib/waagent/*-[0-9]*.[0-9]*/download"},
			Keep: []string{"/var/lib/waagent/WALinuxAgent-*"},
			Why:  "protected settings; and with the donor's sequence number an extension would not run"},
		{ID: "waagent-provisioning", Group: group, Action: Edit, Phase: Donor, When: FirstBootAgent, Change: disableProvisioning, Paths: []string{"/etc/waagent.conf"},
			Why: "the first boot provisions the clone; waagent must not do it a second time"},
		{ID: "hyperv-kvp", Group: group, Action: Truncate, Phase: Donor, Paths: []string{"/var/lib/hyperv/.kvp_pool_*"},
			Why: "the donor's provisioning report and VM id would be reported again"},
		{ID: "aks-sentinels", Group: group, Action: Remove, Phase: Donor, When: FirstBootCloudInit,
			Paths: []string{"/opt/azure/containers/provision.complete", "/opt/azure/containers/kubelet.sh.done", "/opt/azure/cloud-init-files.paved"},
			Why:   "with them AKS's script exits at once, saying it already ran; without the script they keep waagent from running it again on the donor"},
		{ID: "aks-state", Group: group, Action: Remove, Phase: Donor,
			Paths: []string{"/opt/azure/containers/tls-bootstrap-start-time", "/opt/azure/containers/imds_instance_metadata_cache.json", "/opt/azure/containers/provision.json"},
			Why:   "what IMDS and the script said of the donor"},
		{ID: "aks-config", Group: group, Action: Remove, Phase: Donor, Secret: true,
			Paths: []string{"/opt/azure/containers/aks-node-controller-config.json", "/opt/azure/containers/aks-node-controller-nbc-cmd.sh", "/opt/azure/containers/boothook.sh",
				"/opt/azure/containers/*.env", "/opt/azure/containers/cloud-init-status-*"},
			Why: "the bootstrap configuration with its token"},
	}
}

func secretRules() []Rule {
	const group = "Keys and registrations"
	return []Rule{
		{ID: "encrypted-credentials", Group: group, Action: Check, Phase: Donor,
			Paths: []string{"/etc/credstore.encrypted/*", "/var/lib/systemd/credential.encrypted/*"},
			Why:   "a clone cannot decrypt what was encrypted with the donor's TPM or host key"},
		{ID: "ssh-host-keys", Group: group, Action: Remove, Phase: Donor, Secret: true, Paths: []string{"/etc/ssh/ssh_host_*_key", "/etc/ssh/ssh_host_*_key.pub", "/etc/ssh/ssh_host_*_key-cert.pub"},
			Why: "who has one clone's key can pose as all of them; made anew before sshd starts"},
		{ID: "ssh-user-keys", Group: group, Action: Remove, Phase: Donor, Secret: true, Paths: []string{"/root/.ssh", "/home/*/.ssh"},
			Why: "access of and to the donor's users; the first boot adds the keys that IMDS names"},
		{ID: "password-hashes", Group: group, Action: Edit, Phase: Donor, Secret: true, Change: lockPasswords, Paths: []string{"/etc/shadow"},
			Why: "a hash can be attacked by whoever reads the image; keys still open the account"},
		{ID: "account-backups", Group: group, Action: Remove, Phase: Donor, Secret: true,
			Paths: []string{"/etc/passwd-", "/etc/shadow-", "/etc/group-", "/etc/gshadow-", "/etc/shadow.bak", "/var/backups/*"}, Why: "former password hashes"},
		{ID: "random-seed", Group: group, Action: Remove, Phase: Donor, Secret: true,
			Paths: []string{"/var/lib/systemd/random-seed", "/var/lib/urandom/random-seed", "/boot/efi/loader/random-seed", "/boot/loader/random-seed", "/efi/loader/random-seed"},
			Why:   "all clones would start their random generators from one seed"},
		{ID: "systemd-credential", Group: group, Action: Remove, Phase: Donor, Secret: true, Paths: []string{"/var/lib/systemd/credential.secret"},
			Why: "host key of systemd-creds"},
		{ID: "self-signed", Group: group, Action: Remove, Phase: Donor, Secret: true,
			Paths: []string{"/etc/ssl/private/ssl-cert-snakeoil.key", "/etc/ssl/certs/ssl-cert-snakeoil.pem", "/etc/pki/tls/private/localhost.key", "/etc/pki/tls/certs/localhost.crt"},
			Why:   "one TLS key for all clones"},
		{ID: "kerberos", Group: group, Action: Remove, Phase: Donor, Secret: true, Paths: []string{"/etc/krb5.keytab", "/etc/krb5.keytab.*", "/var/kerberos/krb5/user/*/*.keytab"},
			Why: "the donor's machine account"},
		{ID: "directory-services", Group: group, Action: Remove, Phase: Donor, Secret: true,
			Paths: []string{"/var/lib/samba/private/*", "/var/lib/sss/db/*", "/var/lib/sss/secrets/*", "/var/lib/sss/mc/*", "/var/lib/ipa-client/*"}, Why: "machine account and cached identities"},
		{ID: "subscriptions", Group: group, Action: Remove, Phase: Donor, Secret: true,
			Paths: []string{"/etc/pki/consumer/*", "/etc/pki/entitlement/*", "/var/lib/rhsm/*", "/var/lib/ubuntu-advantage/private/*", "/var/lib/ubuntu-pro/private/*",
				"/var/lib/snapd/device/*", "/etc/popularity-contest.conf"},
			Why: "registrations that belong to one machine"},
		{ID: "vpn", Group: group, Action: Remove, Phase: Donor, Secret: true, Paths: []string{"/var/lib/tailscale/*", "/etc/wireguard/*", "/etc/openvpn/client/*"},
			Why: "two machines with one key knock each other off the network"},
		{ID: "configuration-management", Group: group, Action: Remove, Phase: Donor, Secret: true,
			Paths: []string{"/etc/salt/pki/minion/*", "/etc/salt/minion_id", "/etc/puppetlabs/puppet/ssl/*", "/var/lib/puppet/ssl/*", "/etc/chef/client.pem", "/etc/chef/validation.pem"},
			Why:   "identity of the donor's agent"},
		{ID: "monitoring", Group: group, Action: Remove, Phase: Donor, Secret: true,
			Paths: []string{"/etc/datadog-agent/auth_token", "/etc/opt/microsoft/mdatp/mdatp_onboard.json", "/etc/opt/microsoft/azuremonitoragent/config-cache/*",
				"/var/opt/microsoft/azuremonitoragent/events/*", "/etc/opt/microsoft/omsagent/*/certs/*", "/var/osquery/osquery.db"},
			Why: "agents that would report all clones as one host"},
		{ID: "user-credentials", Group: group, Action: Remove, Phase: Donor, Secret: true,
			Paths: userPaths(".azure", ".aws", ".config/gcloud", ".netrc", ".git-credentials", ".gnupg", ".npmrc", ".pgpass", ".vault-token", ".config/gh", ".terraform.d"),
			Why:   "what people left on the donor"},
		{ID: "swap", Group: group, Action: Remove, Phase: Donor, Secret: true, Paths: []string{"/swapfile", "/swap.img", "/var/swapfile", "/var/swap"},
			Why: "memory of the donor's processes"},
	}
}

func traceRules() []Rule {
	const group = "Logs and traces"
	return []Rule{
		{ID: "pending-reboot", Group: group, Action: Check, Phase: Donor, Paths: []string{"/run/reboot-required", "/var/run/reboot-required"},
			Why: "the donor has not yet run with what it installed; reboot it, and take it when it is Ready again"},
		{ID: "journal", Group: group, Action: Remove, Phase: Donor, Secret: true, Paths: []string{"/var/log/journal/*"},
			Why: "kept under the donor's machine-id, it would never be vacuumed on clones; journals hold secrets"},
		{ID: "logs", Group: group, Action: Remove, Phase: Donor, Secret: true,
			Paths: []string{"/var/log/auth.log*", "/var/log/secure*", "/var/log/syslog*", "/var/log/messages*", "/var/log/kern.log*", "/var/log/daemon.log*", "/var/log/user.log*",
				"/var/log/cron*", "/var/log/debug*", "/var/log/dmesg*", "/var/log/boot.log*", "/var/log/maillog*", "/var/log/cloud-init*", "/var/log/waagent*", "/var/log/azure/*", "/var/log/audit/*",
				"/var/log/apt/*", "/var/log/unattended-upgrades/*", "/var/log/sysstat/*", "/var/log/sa/*", "/var/log/azure-*.log*", "/var/log/calico/*", "/var/log/kube*.log*", "/var/log/landscape/*"},
			Why: "what happened on the donor, at its size"},
		{ID: "logins", Group: group, Action: Truncate, Phase: Donor, Paths: []string{"/var/log/wtmp", "/var/log/btmp", "/var/log/lastlog", "/var/log/faillog", "/var/log/tallylog", "/var/log/wtmp.*", "/var/log/btmp.*"},
			Why: "who logged in to the donor from where"},
		{ID: "histories", Group: group, Action: Remove, Phase: Donor, Secret: true,
			Paths: userPaths(".*_history", ".viminfo", ".lesshst", ".wget-hsts", ".local/share/nano/search_history"), Why: "passwords typed on command lines"},
		{ID: "spool", Group: group, Action: Remove, Phase: Donor, Secret: true,
			Paths: []string{"/var/spool/cron/crontabs/*", "/var/spool/cron/atjobs/*", "/var/spool/cron/root", "/var/spool/at/*", "/var/spool/mail/*", "/var/mail/*", "/var/spool/anacron/*"},
			Why:   "jobs and mail of the donor"},
		{ID: "timers", Group: group, Action: Remove, Phase: Donor, Paths: []string{"/var/lib/systemd/timers/*", "/var/lib/systemd/linger/*"},
			Why: "with old stamps every persistent timer is due at once on the clone's first boot, competing with kubelet"},
		{ID: "crashes", Group: group, Action: Remove, Phase: Donor, Secret: true, Paths: []string{"/var/lib/systemd/coredump/*", "/var/crash/*", "/var/core/*", "/var/lib/systemd/pstore/*"},
			Why: "memory of the donor's processes"},
		{ID: "temporary", Group: group, Action: Remove, Phase: Donor, Secret: true, Paths: []string{"/tmp/*", "/tmp/.[a-zA-Z]*", "/var/tmp/*"}, Why: "whatever was left there"},
		{ID: "packages", Group: group, Action: Remove, Phase: Donor,
			Paths: []string{"/var/cache/apt/archives/*.deb", "/var/cache/apt/*.bin", "/var/lib/apt/lists/*_*", "/var/cache/dnf/*", "/var/cache/yum/*"}, Why: "size; stale the next day"},
	}
}

func userPaths(names ...string) (paths []string) {
	for _, n := range names {
		paths = append(paths, "/root/"+n, "/home/*/"+n)
	}
	return paths
}

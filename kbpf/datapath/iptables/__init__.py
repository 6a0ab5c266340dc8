"""The iptables datapath: names, ruleset values, render, plan, trace (pure); commands, fake, backend."""

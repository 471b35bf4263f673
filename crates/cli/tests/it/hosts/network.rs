//! Hosts on one network: a network namespace and an address each.

use std::fs::File;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use nix::sched::{CloneFlags, setns};

use super::run;

/// Hosts and the bridge between them; removed when this is dropped.
pub(crate) struct Network {
    /// Prefix of the namespaces' names.
    prefix: String,
    hosts: usize,
    /// Third byte of the addresses.
    block: u8,
}

impl Network {
    /// `None` if this process may not create network namespaces.
    pub(crate) fn new(hosts: usize) -> Option<Self> {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let prefix = format!("tw{}n{number}", std::process::id());
        let block = u8::try_from((std::process::id() + number) % 250).unwrap();
        let made = ip(&format!("netns add {prefix}sw")).output().unwrap();
        if !made.status.success() {
            let why = String::from_utf8_lossy(&made.stderr);
            eprintln!("not available here: it takes the right to make network namespaces: {why}");
            return None;
        }
        let network = Self {
            prefix,
            hosts,
            block,
        };
        let switch = network.switch();
        run(ip(&format!("-n {switch} link add br0 type bridge")));
        run(ip(&format!("-n {switch} link set br0 up")));
        for host in 0..hosts {
            let (name, address) = (network.name(host), network.ip(host));
            run(ip(&format!("netns add {name}")));
            run(ip(&format!(
                "-n {switch} link add p{host} type veth peer name eth0 netns {name}"
            )));
            run(ip(&format!("-n {switch} link set p{host} master br0 up")));
            run(ip(&format!("-n {name} addr add {address}/24 dev eth0")));
            run(ip(&format!("-n {name} link set eth0 up")));
            run(ip(&format!("-n {name} link set lo up")));
        }
        Some(network)
    }

    pub(super) fn ip(&self, host: usize) -> IpAddr {
        let last = u8::try_from(host + 1).unwrap();
        Ipv4Addr::new(10, 213, self.block, last).into()
    }

    /// A command that runs its arguments on a host.
    pub(crate) fn command(&self, host: usize) -> Command {
        ip(&format!("netns exec {}", self.name(host)))
    }

    pub(super) fn run(&self, host: usize, line: &str) {
        let mut command = self.command(host);
        command.args(line.split(' '));
        run(command);
    }

    /// Cuts or restores the link between two hosts.
    pub(super) fn cut(&self, one: usize, other: usize) {
        for (host, peer) in [(one, other), (other, one)] {
            let peer = self.ip(peer);
            self.run(host, &format!("ip route add blackhole {peer}/32"));
        }
    }

    pub(super) fn mend(&self, one: usize, other: usize) {
        for (host, peer) in [(one, other), (other, one)] {
            let peer = self.ip(peer);
            self.run(host, &format!("ip route del blackhole {peer}/32"));
        }
    }

    /// Drops `percent` of the datagrams from a peer at a host.
    pub(super) fn lose(&self, host: usize, peer: usize, percent: u8) {
        self.lose_of(host, self.ip(peer), percent);
    }

    /// Drops `percent` of the packets from an address at a host.
    pub(super) fn lose_of(&self, host: usize, peer: IpAddr, percent: u8) {
        self.run(host, "nft add table inet t");
        let hook = "nft add chain inet t in { type filter hook input priority 0 ; }";
        self.run(host, hook);
        self.run(
            host,
            &format!(
                "nft add rule inet t in ip saddr {peer} numgen random mod 100 < {percent} drop"
            ),
        );
    }

    pub(super) fn lose_no_more(&self, host: usize) {
        self.run(host, "nft delete table inet t");
    }

    pub(super) fn socket(&self, host: usize, port: u16) -> UdpSocket {
        let address = SocketAddr::new(self.ip(host), port);
        self.inside(host, move || UdpSocket::bind(address).unwrap())
    }

    /// Runs a closure on a host.
    pub(super) fn inside<T: Send + 'static>(
        &self,
        host: usize,
        open: impl FnOnce() -> T + Send + 'static,
    ) -> T {
        let file = File::open(self.path(host)).unwrap();
        let open = move || {
            // A thread has its own namespace, and so do its sockets.
            setns(file, CloneFlags::CLONE_NEWNET).unwrap();
            open()
        };
        thread::spawn(open).join().unwrap()
    }

    /// The file of a host's namespace.
    pub(super) fn path(&self, host: usize) -> String {
        format!("/run/netns/{}", self.name(host))
    }

    fn name(&self, host: usize) -> String {
        format!("{}h{host}", self.prefix)
    }

    fn switch(&self) -> String {
        format!("{}sw", self.prefix)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let hosts = (0..self.hosts).map(|host| self.name(host));
        for name in hosts.chain([self.switch()]) {
            // It may not exist.
            ip(&format!("netns del {name}")).output().ok();
        }
    }
}

fn ip(line: &str) -> Command {
    let mut command = Command::new("ip");
    command.args(line.split(' '));
    command
}

/// Number of this process's next network.
static NEXT: AtomicU32 = AtomicU32::new(0);

//! The allowed system calls (seccomp(2)): the calls that files, sockets, threads and a successor need. Any other call would only serve an
//! intruder.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch, apply_filter_all_threads,
};

use crate::config::Seccomp;

/// Restricts all threads and all processes that they start.
///
/// # Errors
/// A line: this architecture has no list, or the kernel refused the filter.
pub(super) fn restrict(mode: Seccomp) -> Result<(), String> {
    let architecture = TargetArch::try_from(std::env::consts::ARCH)
        .map_err(|_| format!("there is no list of system calls for {}", std::env::consts::ARCH))?;
    let otherwise = match mode {
        Seccomp::Off => return Ok(()),
        // Not EPERM: after ENOSYS libraries fall back to an older call; after EPERM they fail.
        Seccomp::Refuse => SeccompAction::Errno(libc::ENOSYS as u32),
        Seccomp::Kill => SeccompAction::KillProcess,
    };
    let calls = [MEMORY, THREADS, TIME, FILES, SOCKETS, EVENTS, IDENTITY, CONFINEMENT, OLD];
    let mut rules: Rules = calls.into_iter().flatten().map(|call| (*call, Vec::new())).collect();
    let by_argument = || -> Result<Rules, seccompiler::BackendError> {
        // A process in a user namespace of its own has every capability there, and reaches code of the kernel that only root could.
        let in_this_namespace = argument(SeccompCmpOp::MaskedEq(NEW_NAMESPACES), 0)?;
        let sockets = FAMILIES.map(|family| argument(SeccompCmpOp::Eq, family as u64));
        let unix = argument(SeccompCmpOp::Eq, libc::AF_UNIX as u64)?;
        Ok(BTreeMap::from([
            (libc::SYS_clone, vec![in_this_namespace]),
            (libc::SYS_socket, sockets.into_iter().collect::<Result<_, _>>()?),
            (libc::SYS_socketpair, vec![unix]),
        ]))
    };
    rules.extend(by_argument().map_err(|e| e.to_string())?);
    // The flags of clone3 lie in memory, where no filter can look. Without it the C library takes clone.
    let without_clone3 = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
    let no_clone3 = SeccompFilter::new(
        without_clone3,
        SeccompAction::Allow,
        SeccompAction::Errno(libc::ENOSYS as u32),
        architecture,
    );
    let listed = SeccompFilter::new(rules, otherwise, SeccompAction::Allow, architecture);
    // Of two filters the stricter answer counts: the second allows clone3, which the first refuses without ending the process.
    for filter in [no_clone3, listed] {
        let filter = filter.map_err(|e| e.to_string())?;
        let program: BpfProgram = filter.try_into().map_err(|e: seccompiler::BackendError| e.to_string())?;
        apply_filter_all_threads(&program).map_err(|e| e.to_string())?;
    }
    Ok(())
}

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// A rule that allows a call by its first argument.
fn argument(operator: SeccompCmpOp, value: u64) -> Result<SeccompRule, seccompiler::BackendError> {
    SeccompRule::new(vec![SeccompCondition::new(0, SeccompCmpArgLen::Dword, operator, value)?])
}

/// Flags of clone(2) that make namespaces.
const NEW_NAMESPACES: u64 = (libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET) as u64;

/// Families of sockets: clients and name servers, logs and the service manager, and netlink for statistics of sockets and resolving names.
const FAMILIES: [i32; 4] = [libc::AF_INET, libc::AF_INET6, libc::AF_UNIX, libc::AF_NETLINK];

const MEMORY: &[i64] = &[
    libc::SYS_brk,
    libc::SYS_madvise,
    libc::SYS_membarrier,
    libc::SYS_memfd_create,
    libc::SYS_mlock,
    libc::SYS_mlock2,
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_munlock,
    libc::SYS_munmap,
    libc::SYS_msync,
];

/// Threads and processes; the latter for an upgrade.
const THREADS: &[i64] = &[
    libc::SYS_clone,
    libc::SYS_clone3,
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_futex,
    libc::SYS_get_robust_list,
    libc::SYS_getcpu,
    libc::SYS_getrandom,
    libc::SYS_kill,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_send_signal,
    libc::SYS_prctl,
    libc::SYS_prlimit64,
    libc::SYS_restart_syscall,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigpending,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigsuspend,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_yield,
    libc::SYS_set_robust_list,
    libc::SYS_set_tid_address,
    libc::SYS_sigaltstack,
    libc::SYS_sysinfo,
    libc::SYS_tgkill,
    libc::SYS_tkill,
    libc::SYS_umask,
    libc::SYS_uname,
    libc::SYS_wait4,
    libc::SYS_waitid,
    libc::SYS_getrusage,
];

const TIME: &[i64] = &[
    libc::SYS_clock_getres,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_gettimeofday,
    libc::SYS_nanosleep,
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_gettime,
    libc::SYS_timerfd_settime,
    libc::SYS_times,
];

const FILES: &[i64] = &[
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_copy_file_range,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_fadvise64,
    libc::SYS_fallocate,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_fcntl,
    libc::SYS_fdatasync,
    libc::SYS_flock,
    libc::SYS_fstat,
    libc::SYS_fstatfs,
    libc::SYS_fsync,
    libc::SYS_syncfs,
    libc::SYS_ftruncate,
    libc::SYS_getcwd,
    libc::SYS_getdents64,
    libc::SYS_inotify_add_watch,
    libc::SYS_inotify_init1,
    libc::SYS_inotify_rm_watch,
    libc::SYS_ioctl,
    libc::SYS_linkat,
    libc::SYS_lseek,
    libc::SYS_mkdirat,
    libc::SYS_newfstatat,
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_pipe2,
    libc::SYS_pread64,
    libc::SYS_preadv,
    libc::SYS_preadv2,
    libc::SYS_pwrite64,
    libc::SYS_pwritev,
    libc::SYS_pwritev2,
    libc::SYS_read,
    libc::SYS_readahead,
    libc::SYS_readlinkat,
    libc::SYS_readv,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_sendfile,
    libc::SYS_splice,
    libc::SYS_statfs,
    libc::SYS_statx,
    libc::SYS_symlinkat,
    libc::SYS_tee,
    libc::SYS_truncate,
    libc::SYS_unlinkat,
    libc::SYS_utimensat,
    libc::SYS_write,
    libc::SYS_writev,
];

const SOCKETS: &[i64] = &[
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_bind,
    libc::SYS_connect,
    libc::SYS_getpeername,
    libc::SYS_getsockname,
    libc::SYS_getsockopt,
    libc::SYS_listen,
    libc::SYS_recvfrom,
    libc::SYS_recvmmsg,
    libc::SYS_recvmsg,
    libc::SYS_sendmmsg,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_setsockopt,
    libc::SYS_shutdown,
    libc::SYS_socket,
    libc::SYS_socketpair,
];

const EVENTS: &[i64] = &[
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_eventfd2,
    libc::SYS_ppoll,
    libc::SYS_pselect6,
];

const IDENTITY: &[i64] = &[
    libc::SYS_capget,
    libc::SYS_getegid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getgroups,
    libc::SYS_getpgid,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_getsid,
    libc::SYS_gettid,
    libc::SYS_getuid,
];

/// For a successor that gives up more.
const CONFINEMENT: &[i64] = &[
    libc::SYS_landlock_add_rule,
    libc::SYS_landlock_create_ruleset,
    libc::SYS_landlock_restrict_self,
    libc::SYS_seccomp,
];

/// Older equivalents of the above, which C libraries still use on architectures that have them.
#[cfg(target_arch = "x86_64")]
const OLD: &[i64] = &[
    libc::SYS_access,
    libc::SYS_arch_prctl,
    libc::SYS_chmod,
    libc::SYS_chown,
    libc::SYS_dup2,
    libc::SYS_epoll_create,
    libc::SYS_epoll_wait,
    libc::SYS_eventfd,
    libc::SYS_fork,
    libc::SYS_getdents,
    libc::SYS_getrlimit,
    libc::SYS_link,
    libc::SYS_lstat,
    libc::SYS_mkdir,
    libc::SYS_open,
    libc::SYS_pipe,
    libc::SYS_poll,
    libc::SYS_readlink,
    libc::SYS_rename,
    libc::SYS_rmdir,
    libc::SYS_select,
    libc::SYS_setrlimit,
    libc::SYS_stat,
    libc::SYS_symlink,
    libc::SYS_time,
    libc::SYS_unlink,
    libc::SYS_vfork,
];
#[cfg(not(target_arch = "x86_64"))]
const OLD: &[i64] = &[];

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// The filter is for good, so that a process of its own gets it. `SECCOMP_CHILD`: the mode.
    #[test]
    #[ignore = "run by the test below, in a process of its own"]
    fn child() {
        let Some(mode) = std::env::var_os("SECCOMP_CHILD") else { return };
        rustix::thread::set_no_new_privs(true).unwrap();
        restrict(if mode == "kill" { Seccomp::Kill } else { Seccomp::Refuse }).unwrap();
        assert_eq!(std::thread::spawn(|| 5).join().unwrap(), 5, "threads start without clone3");
        assert!(Command::new("/bin/true").status().unwrap().success(), "a successor starts");
        use rustix::net::{AddressFamily, SocketFlags, SocketType, socket, socket_with, socketpair};
        for family in [AddressFamily::INET, AddressFamily::UNIX, AddressFamily::NETLINK] {
            socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None).unwrap();
        }
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        if mode == "kill" {
            return;
        }
        for family in [AddressFamily::PACKET, AddressFamily::from_raw(libc::AF_ALG as u16), AddressFamily::VSOCK] {
            assert_eq!(socket(family, SocketType::RAW, None).unwrap_err(), rustix::io::Errno::NOSYS, "{family:?}");
        }
        // unshare(1) uses unshare(2), which is not listed; a shell cannot call clone with flags.
        let unshared = Command::new("unshare").args(["--user", "true"]).output().unwrap();
        assert!(!unshared.status.success());
        println!("seccomp holds");
    }

    #[test]
    fn namespaces_and_other_families_are_out_of_reach() {
        for mode in ["refuse", "kill"] {
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.args(["--ignored", "--exact", "--nocapture", "process::privileges::seccomp::tests::child"]);
            let output = command.env("SECCOMP_CHILD", mode).output().unwrap();
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success() && text.contains("1 passed"), "{mode}: {text}");
            assert_eq!(text.contains("seccomp holds"), mode == "refuse", "{text}");
        }
    }
}

//! Stacks of `perf script -F comm,ip,sym,dso`, folded into a tree.

/// A function with the functions that it called, in the order of their first sample.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) name: String,
    pub(super) kernel: bool,
    /// Samples of the function and of those that it called.
    pub(super) samples: u64,
    pub(super) children: Vec<Self>,
}

/// The tree of all stacks, below a root named `all`. The first level has the threads by name.
pub(super) fn fold(script: &str) -> Frame {
    let mut root = Frame { name: "all".to_owned(), ..Frame::default() };
    for sample in script.split("\n\n") {
        let mut lines = sample.lines().filter(|line| !line.trim().is_empty());
        let Some(thread) = lines.next() else { continue };
        root.samples += 1;
        let mut at = root.child(thread.trim(), false);
        // perf prints the innermost function first.
        let frames: Vec<(String, bool)> = lines.filter_map(frame).collect();
        for (name, kernel) in frames.iter().rev() {
            at = at.child(name, *kernel);
        }
    }
    root
}

impl Frame {
    /// The called function, with a sample more.
    fn child(&mut self, name: &str, kernel: bool) -> &mut Self {
        let found = self.children.iter().position(|child| child.name == name && child.kernel == kernel);
        let place = found.unwrap_or_else(|| {
            self.children.push(Self { name: name.to_owned(), kernel, ..Self::default() });
            self.children.len() - 1
        });
        self.children[place].samples += 1;
        &mut self.children[place]
    }
}

/// Name of a line's function, and whether it is the kernel's. `None` for the end of a stack, whose address is -1.
fn frame(line: &str) -> Option<(String, bool)> {
    let (address, rest) = line.trim().split_once(' ')?;
    if address == "ffffffffffffffff" {
        return None;
    }
    let (symbol, object) = rest.rsplit_once(" (").unwrap_or((rest, ""));
    let object = object.trim_end_matches(')').rsplit('/').next().unwrap_or_default();
    let name = if symbol == "[unknown]" { object } else { symbol };
    // The upper half of the address space is the kernel's on every 64-bit architecture.
    Some((name.to_owned(), address.len() == 16 && address.starts_with("ffff")))
}

/// Samples of a release build of the server, shortened.
#[cfg(test)]
pub(super) const RECORDED: &str = "\
worker-0 
\tffffffff813a4413 finish_task_switch.isra.0 ([kernel.kallsyms])
\tffffffff821ef85b do_syscall_64 ([kernel.kallsyms])
\t          10aba4 __send (/usr/lib/x86_64-linux-gnu/libc.so.6)
\t         16025cc tokio::net::unix::stream::UnixStream::try_write (/usr/bin/sealion)
\t         1503da4 <impl sealion_tls::stream::TlsStream>::poll_send (/usr/bin/sealion)
\tffffffffffffffff [unknown] ([unknown])

worker-0 
\t          16db75 __memmove_avx512_unaligned_erms (/usr/lib/x86_64-linux-gnu/libc.so.6)
\t         1503da4 <impl sealion_tls::stream::TlsStream>::poll_send (/usr/bin/sealion)
\tffffffffffffffff [unknown] ([unknown])

main thread 
\t           12345 [unknown] (/usr/lib/x86_64-linux-gnu/libc.so.6)

";

#[cfg(test)]
mod tests {
    use super::*;

    /// A line for each frame: depth, name, samples, and `k` for the kernel's.
    fn lines(frame: &Frame, depth: usize) -> Vec<String> {
        let kernel = if frame.kernel { " k" } else { "" };
        let own = format!("{depth} {} {}{kernel}", frame.name, frame.samples);
        std::iter::once(own).chain(frame.children.iter().flat_map(|child| lines(child, depth + 1))).collect()
    }

    #[test]
    fn stacks_that_begin_alike_are_one_tree() {
        let expected = [
            "0 all 3",
            "1 worker-0 2",
            "2 <impl sealion_tls::stream::TlsStream>::poll_send 2",
            "3 tokio::net::unix::stream::UnixStream::try_write 1",
            "4 __send 1",
            "5 do_syscall_64 1 k",
            "6 finish_task_switch.isra.0 1 k",
            "3 __memmove_avx512_unaligned_erms 1",
            "1 main thread 1",
            "2 libc.so.6 1",
        ];
        assert_eq!(lines(&fold(RECORDED), 0), expected);
        assert_eq!(fold("").samples, 0);
    }
}

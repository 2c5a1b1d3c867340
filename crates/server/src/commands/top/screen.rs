//! The live view.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Color, Modifier, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Paragraph, Row, Sparkline, Table};

use super::fetch::Source;
use super::rates::Rates;
use super::text::{self, bytes, number};
use crate::monitor::Summary;

/// The number of samples kept for the curves.
const HISTORY: usize = 200;

/// The maximum number of servers and of routes on the screen.
const MAX_PARTS: usize = 6;

/// Lines of the curves, of ten paths, and of the foot.
const LINES_BELOW: usize = 17;

struct View {
    now: Summary,
    rates: Rates,
    user: Vec<u64>,
    kernel: Vec<u64>,
    /// The error of the last fetch, while the numbers are old.
    stale: Option<String>,
}

/// Draws until `q`, Esc or Ctrl-C. The terminal is restored on every exit, including a panic.
pub(super) fn run(source: &Source, first: Summary, every: Duration) -> Result<ExitCode, String> {
    let mut terminal = ratatui::try_init().map_err(|error| format!("cannot use the terminal: {error}: try --once"))?;
    let ended = watch(&mut terminal, source, first, every);
    ratatui::restore();
    ended.map(|()| ExitCode::SUCCESS).map_err(|error| format!("cannot use the terminal: {error}: try --once"))
}

fn watch(
    terminal: &mut ratatui::DefaultTerminal,
    source: &Source,
    first: Summary,
    every: Duration,
) -> std::io::Result<()> {
    let mut view =
        View { rates: Rates::between(&first, &first), now: first, user: vec![], kernel: vec![], stale: None };
    let mut next = Instant::now() + every;
    loop {
        terminal.draw(|frame| view.draw(frame))?;
        while event::poll(next.saturating_duration_since(Instant::now()))? {
            match event::read()? {
                Event::Key(key) if key.kind != KeyEventKind::Release => match key.code {
                    KeyCode::Char('q') | KeyCode::Esc => return Ok(()),
                    KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return Ok(()),
                    _ => {}
                },
                Event::Resize(..) => _ = terminal.draw(|frame| view.draw(frame))?,
                _ => {}
            }
        }
        next = Instant::now() + every;
        match source.fetch() {
            Ok(now) => view.take(now),
            Err(error) => view.stale = Some(error),
        }
    }
}

impl View {
    fn take(&mut self, now: Summary) {
        self.rates = Rates::between(&self.now, &now);
        for (history, rate) in [(&mut self.user, self.rates.bytes_user), (&mut self.kernel, self.rates.bytes_kernel)] {
            history.push(rate as u64);
            if history.len() > HISTORY {
                history.remove(0);
            }
        }
        self.now = now;
        self.stale = None;
    }

    fn draw(&self, frame: &mut Frame<'_>) {
        let mut lines = text::lines(&self.now, &self.rates);
        // A low screen keeps its place for paths.
        let room = usize::from(frame.area().height).saturating_sub(lines.len() + LINES_BELOW);
        lines.extend(text::parts(&self.rates, MAX_PARTS).into_iter().take(room));
        let [head, curves, paths, foot] = Layout::vertical([
            Constraint::Length(lines.len() as u16),
            Constraint::Length(4),
            Constraint::Min(3),
            Constraint::Length(1),
        ])
        .areas(frame.area());
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let shown: Vec<Line<'_>> = lines
            .into_iter()
            .map(|(topic, text)| Line::from(vec![Span::styled(format!("{topic:<12} "), bold), Span::raw(text)]))
            .collect();
        frame.render_widget(Paragraph::new(shown), head);
        let [user, kernel] = Layout::horizontal([Constraint::Fill(1), Constraint::Fill(1)]).areas(curves);
        let most = self.user.iter().chain(&self.kernel).copied().max().unwrap_or(0).max(1);
        for (area, name, rate, history, color) in [
            (user, "user", self.rates.bytes_user, &self.user, Color::Cyan),
            (kernel, "kernel", self.rates.bytes_kernel, &self.kernel, Color::Green),
        ] {
            let title = format!(" {name} {}/s ", bytes(rate));
            let block = Block::new().borders(Borders::TOP).title(title.bold());
            // The newest sample is at the right.
            let width = usize::from(area.width);
            let mut points = vec![0; width.saturating_sub(history.len())];
            points.extend(&history[history.len().saturating_sub(width)..]);
            frame.render_widget(Sparkline::default().block(block).data(points).max(most).style(color), area);
        }
        let rows = self.rates.paths.iter().map(|(path, rate)| {
            Row::new([number(*rate), path.requests.to_string(), bytes(path.bytes as f64), path.path.clone()])
        });
        let widths = [Constraint::Length(10), Constraint::Length(12), Constraint::Length(10), Constraint::Fill(1)];
        let header = Row::new(["requests/s", "requests", "bytes", "path"]).style(bold);
        let block = Block::new().borders(Borders::TOP).title(" most requested paths ".bold());
        frame.render_widget(Table::new(rows, widths).header(header).block(block), paths);
        let foot_line = match &self.stale {
            Some(error) => Line::from(error.as_str()).style(Style::new().fg(Color::Black).bg(Color::Yellow)),
            None => Line::from("q: quit").style(Style::new().add_modifier(Modifier::DIM)),
        };
        frame.render_widget(foot_line, foot);
    }
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;
    use crate::monitor::{MirrorSummary, RouteSummary, ServerSummary, StoreSummary};
    use crate::observe::metrics::TopPath;

    #[test]
    fn servers_routes_and_the_cache_have_lines_where_the_screen_has_room() {
        let server = ServerSummary {
            upstream: "app".into(),
            server: "http://10.0.0.7".into(),
            state: "out".into(),
            ..Default::default()
        };
        let route = |name: &str, requests| RouteSummary { name: name.into(), requests, ..Default::default() };
        let before = Summary {
            upstreams: vec![server.clone()],
            routes: vec![route("a.example /seldom", 3)],
            ..Summary::default()
        };
        let now = Summary {
            uptime_seconds: 1.0,
            upstreams: vec![ServerSummary { answers: 8, failures: 2, ..server }],
            mirrors: vec![MirrorSummary { upstream: "next".into(), sent: 6, dropped: 1 }],
            store: Some(StoreSummary { requests: 4, hits: 3, objects: 7, up: 1, directories: 2, ..Default::default() }),
            routes: vec![route("a.example /seldom", 4), route("a.example /often", 9)],
            ..Summary::default()
        };
        let view = View { rates: Rates::between(&before, &now), now, user: vec![], kernel: vec![], stale: None };
        let mut terminal = Terminal::new(TestBackend::new(160, 50)).unwrap();
        terminal.draw(|frame| view.draw(frame)).unwrap();
        let shown: String = terminal.backend().buffer().content().iter().map(|cell| cell.symbol()).collect();
        for words in [
            "app http://10.0.0.7 LEFT OUT, 8.0/s, errors 2.0/s, active 0",
            "next: 6.0/s of 6 sent, 1.0/s of 1 dropped",
            "75 % hits, 7 responses, 0 B, 1 of 2 directories in use",
            "a.example /often: 9.0/s of 9, errors 0/s",
        ] {
            assert!(shown.contains(words), "{words}: {shown}");
        }
        let (often, seldom) = (shown.find("/often"), shown.find("/seldom"));
        assert!(often < seldom, "the busiest route comes first: {shown}");
    }

    /// A screen of 80 by 24 shows everything important, and a tiny screen is not a reason to fail.
    #[test]
    fn it_fits_the_smallest_usual_screen() {
        let path: TopPath =
            serde_json::from_str(r#"{"path":"/index.html","requests":41,"error":0,"bytes":4096}"#).unwrap();
        let now = Summary { version: "0.1.0".into(), paths: vec![path], draining: true, ..Summary::default() };
        let mut view =
            View { rates: Rates::between(&now, &now), now: now.clone(), user: vec![], kernel: vec![], stale: None };
        for _ in 0..3 {
            view.take(now.clone());
        }
        view.stale = Some("the server is gone".into());
        for (columns, rows) in [(80, 24), (200, 60), (20, 5), (1, 1)] {
            let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
            terminal.draw(|frame| view.draw(frame)).unwrap();
            let shown: String = terminal.backend().buffer().content().iter().map(|cell| cell.symbol()).collect();
            if columns >= 80 {
                for word in
                    ["DRAINING", "latency", "handshakes", "access log", "kernel 0 B/s", "/index.html", "is gone"]
                {
                    assert!(shown.contains(word), "{word} in {columns} x {rows}: {shown}");
                }
            }
        }
    }
}

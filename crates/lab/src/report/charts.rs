//! The charts of each study.

use super::arm;
use super::chart::{Chart, Point, Scale, Series};
use super::figures::{Measured, Metric, chose_kernel};
use super::published;
use super::study::compared::Compared;
use crate::units;

/// A metric in a chart against size.
struct Plot {
    metric: Metric,
    title: &'static str,
    better: &'static str,
    y_title: &'static str,
    y_format: fn(f64) -> String,
}

const CPU_PER_REQUEST: Plot = Plot {
    metric: Metric::CpuPerRequest,
    title: "Server CPU per request",
    better: LESS,
    y_title: "CPU time",
    y_format: units::time,
};

const REST: [Plot; 5] = [
    Plot {
        metric: Metric::CpuPerGigabyte,
        title: "Server CPU per GB",
        better: LESS,
        y_title: "s per 10⁹ bytes",
        y_format: units::significant,
    },
    Plot {
        metric: Metric::Requests,
        title: "Requests per second",
        better: MORE,
        y_title: "1/s",
        y_format: units::count,
    },
    Plot { metric: Metric::Throughput, title: "Throughput", better: MORE, y_title: "bodies", y_format: units::rate },
    Plot {
        metric: Metric::Roi,
        title: "Return on investment",
        better: MORE,
        y_title: "(GB/s)² per core",
        y_format: units::significant,
    },
    Plot {
        metric: Metric::RoiRequests,
        title: "Return on investment in requests",
        better: MORE,
        y_title: "(1,000 requests/s)² per core",
        y_format: units::count,
    },
];

const INSTRUCTIONS: Plot = Plot {
    metric: Metric::Instructions,
    title: "Instructions per request",
    better: LESS,
    y_title: "instructions of the server",
    y_format: units::count,
};

const INSTRUCTIONS_PER_BYTE: Plot = Plot {
    metric: Metric::InstructionsPerByte,
    title: "Instructions per body byte",
    better: LESS,
    y_title: "instructions of the server",
    y_format: units::significant,
};

/// Charts of all metrics against size, for cells that differ only in size. With `instructions`, only metrics that an
/// emulated guest can measure.
pub(crate) fn against_size(cells: &[&Measured], instructions: bool) -> Vec<Chart> {
    let plot = |plot: &Plot| Chart {
        title: plot.title.to_owned(),
        subtitle: plot.better.to_owned(),
        y_title: plot.y_title.to_owned(),
        y_format: plot.y_format,
        ..of_sizes(cells, |measured| spread(measured, plot.metric))
    };
    let mut charts = Vec::new();
    if instructions {
        charts.push(plot(&INSTRUCTIONS));
        charts.push(ratio_to_user_space(cells, Metric::Instructions));
        charts.push(plot(&INSTRUCTIONS_PER_BYTE));
    } else {
        charts.push(plot(&CPU_PER_REQUEST));
        charts.push(ratio_to_user_space(cells, Metric::CpuPerRequest));
        charts.extend(REST.iter().map(plot));
        for (quantile, name) in [(0.5, "median"), (0.9, "90th percentile"), (0.99, "99th percentile")] {
            charts.push(latency(cells, quantile, name));
        }
    }
    charts.retain(|chart| !chart.is_empty());
    charts
}

/// The cost of a request against size, as a ratio to user space and absolute.
pub(crate) fn paths_against_size(cells: &[&Measured], metric: Metric) -> Vec<Chart> {
    let mut ratio = ratio_to_user_space(cells, metric);
    if ratio.x_ticks.len() < 2 {
        ratio.series.clear();
    }
    let mut cost = crossing(cells, metric, "Cost of a request", None);
    if cost.x_ticks.len() < 2 {
        cost.series.clear();
    }
    vec![ratio, cost]
}

/// A metric against the number of calls, for cells that differ only in calls.
pub(crate) fn against_calls(cells: &[&Measured], title: &str, instructions: bool) -> Chart {
    let (metric, better, y_title, y_format): (_, _, _, fn(f64) -> String) = if instructions {
        (Metric::Instructions, LESS, "instructions per request", units::count)
    } else {
        (Metric::Requests, MORE, "requests per second", units::count)
    };
    Chart {
        title: title.to_owned(),
        subtitle: better.to_owned(),
        y_title: y_title.to_owned(),
        y_format,
        y_scale: Scale::FromZero,
        ..of_calls(cells, |measured| spread(measured, metric))
    }
}

/// A percentile of latency against the number of calls, for cells that differ only in calls.
pub(crate) fn latency_against_calls(cells: &[&Measured], quantile: f64, title: &str) -> Chart {
    Chart {
        title: title.to_owned(),
        subtitle: "less is better; start of a request to its last byte; bars: 95 %, none below 5 rounds".to_owned(),
        y_title: "time".to_owned(),
        y_format: units::time,
        ..of_calls(cells, |measured| percentile(measured, quantile))
    }
}

/// A percentile of latency over the requests answered in a second, for cells that differ only in their rate.
pub(crate) fn latency_over_rate(cells: &[&Measured], quantile: f64, title: &str) -> Chart {
    let rate = |measured: &Measured| measured.median(Metric::Requests);
    let known: Vec<&Measured> = cells.iter().filter(|measured| rate(measured).is_some()).copied().collect();
    let rates: Vec<f64> = known.iter().filter_map(|measured| rate(measured)).collect();
    let ticks = round_numbers(&rates).into_iter().map(|at| (at, units::count(at))).collect();
    Chart {
        title: title.to_owned(),
        subtitle: "lower and further to the right is better; from the intended start; bars: 95 %".to_owned(),
        y_title: "time".to_owned(),
        y_format: units::time,
        ..lines(
            &known,
            "requests per second",
            ticks,
            |measured| rate(measured).unwrap_or(1.0),
            |measured| percentile(measured, quantile),
        )
    }
}

/// The distribution of latency, for the arms of one cell: percentiles from the median to 99.9 %. The horizontal axis is
/// logarithmic in the share of requests that take longer. A percentile is left out where a round has fewer than
/// [`BEYOND`] requests above it.
pub(crate) fn distribution(cells: &[&Measured], title: &str) -> Chart {
    let mut arms: Vec<&Measured> = cells.to_vec();
    arms.sort_by_key(|measured| arm::order(&measured.arm));
    let beyond = |quantile: f64| 1.0 / (1.0 - quantile);
    let series: Vec<Series> = arms
        .into_iter()
        .map(|measured| {
            let least = measured.rounds.iter().map(|row| row.requests).min().unwrap_or(0) as f64;
            let reached = QUANTILES.into_iter().filter(|quantile| least >= BEYOND * beyond(*quantile));
            let points = reached.filter_map(|quantile| {
                percentile(measured, quantile).map(|point| Point { x: beyond(quantile), ..point })
            });
            Series { name: measured.arm.clone(), style: arm::style(&measured.arm), points: points.collect() }
        })
        .collect();
    let last = series.iter().filter_map(|series| series.points.last()).map(|point| point.x).fold(0.0, f64::max);
    let ticks = QUANTILES.into_iter().filter(|quantile| beyond(*quantile) <= last);
    Chart {
        title: title.to_owned(),
        subtitle: "less is better; from the intended start; bars: 95 %, none below 5 rounds".to_owned(),
        x_title: "percentile of all requests".to_owned(),
        y_title: "latency".to_owned(),
        x_ticks: ticks.map(|quantile| (beyond(quantile), units::percentile(quantile))).collect(),
        y_format: units::time,
        y_scale: Scale::Logarithmic,
        series,
        level: None,
        place: None,
    }
}

/// The percentiles of a distribution.
const QUANTILES: [f64; 7] = [0.5, 0.75, 0.9, 0.95, 0.99, 0.995, 0.999];

/// The minimum number of requests of a round above a percentile that a distribution shows. Below it the percentile is
/// one of the last few requests.
const BEYOND: f64 = 10.0;

/// The numbers 1, 2 and 5 times a power of ten from at most the least of `values` to at least the largest.
fn round_numbers(values: &[f64]) -> Vec<f64> {
    let (least, most) = (values.iter().copied().fold(f64::MAX, f64::min), values.iter().copied().fold(0.0, f64::max));
    let all: Vec<f64> = (0..9).flat_map(|power| [1.0, 2.0, 5.0].map(|digit| digit * 10f64.powi(power))).collect();
    let first = all.iter().rposition(|at| *at <= least).unwrap_or(0);
    let last = all.iter().position(|at| *at >= most).unwrap_or(all.len() - 1);
    if values.is_empty() { Vec::new() } else { all[first..=last.max(first)].to_vec() }
}

/// Throughput with the kernel's path as a ratio to user space on the same server, against size, beside published gains.
pub(crate) fn gain_against_size(cells: &[&Measured], published: &[(u64, f64)]) -> Chart {
    let mut chart = Chart {
        title: "Throughput, ratio to user space".to_owned(),
        subtitle: "above 1: kernel faster; same server; bars: 95 %, or the spread of counts".to_owned(),
        y_title: "ratio".to_owned(),
        y_format: units::ratio,
        level: Some((1.0, String::new())),
        ..of_sizes(cells, |measured| ratio(cells, measured, Metric::Throughput, |one, other| one.cell == other.cell))
    };
    let points: Vec<Point> = published
        .iter()
        .filter(|(size, _)| chart.x_ticks.iter().any(|(x, _)| *x == *size as f64))
        .map(|(size, ratio)| exact(*size as f64, *ratio))
        .collect();
    if !points.is_empty() && !chart.series.is_empty() {
        chart.series.push(Series { name: "published 2023".into(), style: arm::style("published"), points });
    }
    chart
}

/// Requests per second with the kernel's path as a ratio to user space on the same server, against calls. The published
/// ratio of that size is a separate line.
pub(crate) fn gain_against_calls(cells: &[&Measured], size: u64, title: &str) -> Chart {
    let mut chart = Chart {
        title: title.to_owned(),
        subtitle: "above 1: kernel faster; same server; bars: 95 %, or the spread of counts".to_owned(),
        y_title: "requests/s, ratio to user space".to_owned(),
        y_format: units::ratio,
        y_scale: Scale::Logarithmic,
        level: Some((1.0, String::new())),
        ..of_calls(cells, |measured| ratio(cells, measured, Metric::Requests, |one, other| one.calls == other.calls))
    };
    let line = published::SIZE_BY_CALLS.iter().find(|(published, _)| *published == size).map(|(_, line)| *line);
    let points =
        line.unwrap_or_default().iter().filter(|(calls, ..)| chart.x_ticks.iter().any(|(x, _)| *x == *calls as f64));
    let points: Vec<Point> = points.map(|(calls, user, kernel)| exact(*calls as f64, kernel / user)).collect();
    if !points.is_empty() && !chart.series.is_empty() {
        chart.series.push(Series { name: "published 2023".into(), style: arm::style("published"), points });
    }
    chart
}

/// Cost of a request on both paths against size, with the crossover.
pub(crate) fn crossing(cells: &[&Measured], metric: Metric, condition: &str, place: Option<f64>) -> Chart {
    Chart {
        title: condition.to_owned(),
        subtitle: "less is better; bars show the spread of rounds".to_owned(),
        y_title: if metric == Metric::Instructions { "instructions per request" } else { "server CPU per request" }
            .into(),
        y_format: if metric == Metric::Instructions { units::count } else { units::time },
        y_scale: Scale::Logarithmic,
        place: place.map(|size| (size, format!("equal near {}", units::size_about(size)))),
        ..of_sizes(cells, |measured| spread(measured, metric))
    }
}

fn ratio_to_user_space(cells: &[&Measured], metric: Metric) -> Chart {
    let what = if metric == Metric::Instructions { "Instructions" } else { "Server CPU" };
    Chart {
        title: format!("{what} per request, ratio to user-space TLS"),
        subtitle: "below 1: kernel cheaper; same server; bars: 95 %, or the spread of counts".to_owned(),
        y_title: "ratio".to_owned(),
        y_format: units::ratio,
        y_scale: Scale::Logarithmic,
        level: Some((1.0, String::new())),
        ..of_sizes(cells, |measured| ratio(cells, measured, metric, |one, other| one.size == other.size))
    }
}

fn latency(cells: &[&Measured], quantile: f64, name: &str) -> Chart {
    Chart {
        title: format!("Latency, {name}"),
        subtitle: "less is better; start of a request to its last byte; bars: 95 %, none below 5 rounds".to_owned(),
        y_title: "time".to_owned(),
        y_format: units::time,
        y_scale: Scale::Logarithmic,
        ..of_sizes(cells, |measured| percentile(measured, quantile))
    }
}

fn of_sizes(cells: &[&Measured], y: impl Fn(&Measured) -> Option<Point>) -> Chart {
    let mut sizes: Vec<u64> = cells.iter().map(|measured| measured.size).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let ticks = sizes.into_iter().map(|size| (size as f64, units::size(size as f64))).collect();
    lines(cells, "file size (k = 1,024 bytes)", ticks, |measured| measured.size as f64, y)
}

/// Unlimited calls are placed to the right of the largest number.
fn of_calls(cells: &[&Measured], y: impl Fn(&Measured) -> Option<Point>) -> Chart {
    let mut numbers: Vec<u64> = cells.iter().filter_map(|measured| measured.calls).collect();
    numbers.sort_unstable();
    numbers.dedup();
    let beyond = numbers.last().map_or(1.0, |most| *most as f64 * 6.0);
    let mut ticks: Vec<_> = numbers.iter().map(|calls| (*calls as f64, calls.to_string())).collect();
    if cells.iter().any(|measured| measured.calls.is_none()) {
        ticks.push((beyond, "unlimited".to_owned()));
    }
    let x = |measured: &Measured| measured.calls.map_or(beyond, |calls| calls as f64);
    lines(cells, "requests per connection", ticks, x, y)
}

fn lines(
    cells: &[&Measured],
    x_title: &str,
    x_ticks: Vec<(f64, String)>,
    x: impl Fn(&Measured) -> f64,
    y: impl Fn(&Measured) -> Option<Point>,
) -> Chart {
    let mut arms: Vec<&str> = cells.iter().map(|measured| measured.arm.as_str()).collect();
    // Arms without a place of their own are in order by their names, so that each is one line.
    arms.sort_by_key(|name| (arm::order(name), *name));
    arms.dedup();
    let series = arms.into_iter().map(|name| {
        let mut points: Vec<Point> = cells
            .iter()
            .filter(|measured| measured.arm == name)
            .filter_map(|measured| y(measured).map(|point| Point { x: x(measured), ..point }))
            .collect();
        points.sort_by(|one, other| one.x.total_cmp(&other.x));
        Series { name: name.to_owned(), style: arm::style(name), points }
    });
    Chart {
        title: String::new(),
        subtitle: String::new(),
        x_title: x_title.to_owned(),
        y_title: String::new(),
        x_ticks,
        y_format: units::significant,
        y_scale: Scale::Logarithmic,
        series: series.filter(|series| !series.points.is_empty()).collect(),
        level: None,
        place: None,
    }
}

fn spread(measured: &Measured, metric: Metric) -> Option<Point> {
    let summary = measured.summary(metric)?;
    Some(Point { x: 0.0, y: summary.median, low: summary.min, high: summary.max })
}

/// The ratio of the measured arm to user space on the same server, in the cell that `same` finds.
fn ratio(
    cells: &[&Measured],
    measured: &Measured,
    metric: Metric,
    same: impl Fn(&Measured, &Measured) -> bool,
) -> Option<Point> {
    if measured.arm == "auto" && !chose_kernel(cells.iter().copied()) {
        return None;
    }
    let base = arm::user_space_of(&measured.arm)?;
    let base = cells.iter().find(|other| other.arm == base && same(measured, other))?;
    let compared = Compared::between(base, measured, metric)?;
    let [low, high] = compared.ends().unwrap_or([compared.ratio(); 2]);
    Some(Point { x: 0.0, y: compared.ratio(), low, high })
}

/// A percentile with its interval. With too few rounds for one, the tail is left out, and other percentiles have no bar.
fn percentile(measured: &Measured, quantile: f64) -> Option<Point> {
    match measured.percentile(quantile) {
        Some(found) => Some(Point { x: 0.0, y: found.value, low: found.low, high: found.high }),
        None if quantile >= TAIL => None,
        None => Some(exact(0.0, measured.latency()?.value_at_quantile(quantile) as f64)),
    }
}

/// From this quantile on a percentile needs an interval.
const TAIL: f64 = 0.99;

fn exact(x: f64, y: f64) -> Point {
    Point { x, y, low: y, high: y }
}

const LESS: &str = "less is better; bars show the spread of rounds";
const MORE: &str = "more is better; bars show the spread of rounds";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::histogram;
    use crate::report::figures::gather;
    use crate::row::Row;

    #[test]
    fn arms_without_a_place_have_one_line_each() {
        let row = |arm: &str, size: u64| Row {
            study: "mix".into(),
            cell: format!("size={size}"),
            arm: arm.into(),
            size,
            requests: 10,
            server_cpu: Some(70),
            ..Row::default()
        };
        let arms = ["nginx-x", "nginx-y"];
        let cells = gather([1024, 2048].into_iter().flat_map(|size| arms.map(|arm| row(arm, size))).collect());
        let cells: Vec<&Measured> = cells.iter().collect();
        let chart = of_sizes(&cells, |measured| spread(measured, Metric::CpuPerRequest));
        let lines: Vec<_> = chart.series.iter().map(|line| (line.name.as_str(), line.points.len())).collect();
        assert_eq!(lines, [("nginx-x", 2), ("nginx-y", 2)]);
    }

    #[test]
    fn a_distribution_goes_as_far_as_each_round_has_requests() {
        let of = |rounds: u32, requests: u64| {
            let mut times = histogram::of_times();
            (1..=requests).for_each(|n| times.saturating_record(n * 1_000_000 / requests));
            let latency = histogram::encode(&times).unwrap();
            let rows = (0..rounds).map(|round| Row {
                study: "peers".into(),
                cell: "half".into(),
                arm: "user".into(),
                round,
                requests,
                latency: latency.clone(),
                ..Row::default()
            });
            let cells = gather(rows.collect());
            let chart = distribution(&cells.iter().collect::<Vec<_>>(), "half");
            let last = chart.series[0].points.last().map(|point| (point.x.round(), (point.y / 1e4).round()));
            (chart.x_ticks.last().map(|tick| tick.1.clone()).unwrap_or_default(), last)
        };
        assert_eq!(of(5, 20_000), ("p99.9".to_owned(), Some((1000.0, 100.0))));
        assert_eq!(of(5, 9_000), ("p99.5".to_owned(), Some((200.0, 100.0))));
        assert_eq!(of(5, 999), ("p95".to_owned(), Some((20.0, 95.0))));
        assert_eq!(of(4, 20_000), ("p95".to_owned(), Some((20.0, 95.0))), "the tail of four rounds has no interval");
        assert_eq!(of(5, 19), (String::new(), None));
    }
}

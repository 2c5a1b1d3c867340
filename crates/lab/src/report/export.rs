//! Aggregates of a run as CSV or JSON: a line for each figure of each cell and arm.

use std::path::Path;

use anyhow::{Context, Result};
use serde::Serialize;

use super::figures::{Measured, Metric, gather};
use super::raw;
use crate::statistics::Summary;

/// The format of an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Comma-separated values with a head
    Csv,
    /// An array of objects
    Json,
}

/// A figure over the rounds of a cell on an arm.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Line<'a> {
    study: &'a str,
    cell: &'a str,
    arm: &'a str,
    size: u64,
    /// Requests on a connection; empty: unlimited.
    calls: Option<u64>,
    figure: &'a str,
    unit: &'a str,
    /// Rounds that count.
    rounds: usize,
    void: usize,
    median: f64,
    min: f64,
    max: f64,
    mean: f64,
    deviation: f64,
    geometric_mean: f64,
    /// 95 % interval around the geometric mean; empty with fewer than five rounds.
    low: Option<f64>,
    high: Option<f64>,
}

/// The aggregates of the run in `directory`.
///
/// # Errors
/// `raw.csv` is missing or broken.
pub fn export(directory: &Path, format: Format) -> Result<String> {
    let cells = gather(raw::read(directory)?);
    let lines: Vec<Line<'_>> = cells.iter().flat_map(lines).collect();
    match format {
        Format::Json => Ok(serde_json::to_string_pretty(&lines)? + "\n"),
        Format::Csv => {
            let mut writer = csv::Writer::from_writer(Vec::new());
            for line in &lines {
                writer.serialize(line)?;
            }
            let bytes = writer.into_inner().map_err(|error| error.into_error()).context("no memory")?;
            Ok(String::from_utf8(bytes)?)
        }
    }
}

fn lines(measured: &Measured) -> Vec<Line<'_>> {
    let metrics = FIGURES.iter().map(|(metric, figure, unit)| (*figure, *unit, measured.summary(*metric)));
    let percentiles = PERCENTILES.iter().map(|(quantile, figure)| (*figure, "ns", measured.percentiles(*quantile)));
    let line = |(figure, unit, summary): (&'static str, &'static str, Option<Summary>)| {
        let summary = summary?;
        let interval = summary.interval();
        Some(Line {
            study: &measured.study,
            cell: &measured.cell,
            arm: &measured.arm,
            size: measured.size,
            calls: measured.calls,
            figure,
            unit,
            rounds: summary.n,
            void: measured.voids.len(),
            median: summary.median,
            min: summary.min,
            max: summary.max,
            mean: summary.mean,
            deviation: summary.deviation,
            geometric_mean: summary.log_mean.exp(),
            low: interval.map(|[low, ..]| low),
            high: interval.map(|[.., high]| high),
        })
    };
    metrics.chain(percentiles).filter_map(line).collect()
}

const FIGURES: [(Metric, &str, &str); 11] = [
    (Metric::Requests, "requests", "1/s"),
    (Metric::Throughput, "throughput", "B/s"),
    (Metric::CpuPerRequest, "cpu", "ns/request"),
    (Metric::ClientCpuPerRequest, "client_cpu", "ns/request"),
    (Metric::Instructions, "instructions", "1/request"),
    (Metric::Cores, "cores", "1"),
    (Metric::Roi, "roi", "(GB/s)²/core"),
    (Metric::Softirq, "softirq", "ns/request"),
    (Metric::KernelThreads, "kernel_threads", "ns/request"),
    (Metric::Memory, "memory", "B"),
    (Metric::IdleMemory, "idle_memory", "B/connection"),
];

const PERCENTILES: [(f64, &str); 4] =
    [(0.5, "latency_p50"), (0.9, "latency_p90"), (0.99, "latency_p99"), (0.999, "latency_p999")];

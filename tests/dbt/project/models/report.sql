{{ config(materialized='view', schema='spark_catalog.reports') }}
select city, total from {{ ref('cities') }}

#Requires -Version 5.1
#Requires -RunAsAdministrator
<#
.SYNOPSIS
Acceptance test of the Drydock agent on a real Windows machine without an agent.

.DESCRIPTION
Installs the agent, and checks service, logs, permissions, a hook of each kind, a stop that lets a hook end, a restart after
a crash, an upgrade and the removal. metadata_double.py next to this script stands for Azure's metadata service. No backend
is needed. At the end everything is removed. The exit status is the number of failed checks.

.EXAMPLE
.\Test-DrydockAgent.ps1 -Installer C:\drydock-1.0.0\Install-DrydockAgent.ps1 -Bundle C:\drydock-1.0.0
#>
[CmdletBinding()]
param(
    [Parameter(Mandatory = $true)] [string] $Installer,
    [string] $Bundle,
    [string] $Python,
    [int] $Port = 48169
)

Set-StrictMode -Version 2.0
$ErrorActionPreference = 'Stop'

$ServiceName = 'DrydockAgent'
$DataFolder = Join-Path $env:ProgramData 'Drydock'
$ProgramFolder = Join-Path $env:ProgramFiles 'Drydock Agent'
$SettingsFile = Join-Path $DataFolder 'agent.toml'
$HookFolder = Join-Path $DataFolder 'Hooks\prepare.d'
$LogFile = Join-Path $DataFolder 'Logs\agent.log'
$Work = Join-Path $env:SystemDrive 'drydock-acceptance'
$script:Failed = 0

function Confirm-That {
    param([string] $Name, [scriptblock] $Condition, [int] $Seconds = 0)
    $ends = (Get-Date).AddSeconds($Seconds)
    do {
        $holds = $false
        try {
            $holds = [bool] (& $Condition)
        }
        catch {
            Write-Verbose "${Name}: $_"
        }
        if ($holds -or (Get-Date) -ge $ends) {
            break
        }
        Start-Sleep -Milliseconds 500
    } while ($true)
    if ($holds) {
        Write-Host "ok    $Name"
    }
    else {
        Write-Host "FAIL  $Name"
        $script:Failed += 1
    }
}

function Set-Events {
    param([string[]] $Ids)
    $events = @(foreach ($id in $Ids) {
        @{ EventId = $id; EventStatus = 'Scheduled'; EventType = 'Reboot'; ResourceType = 'VirtualMachine'
           Resources = @('acceptance'); NotBefore = ''; EventSource = 'Platform'; DurationInSeconds = -1; Description = 'test' }
    })
    $script:Incarnation += 1
    $text = ConvertTo-Json -Depth 4 @{ DocumentIncarnation = $script:Incarnation; Events = $events }
    [IO.File]::WriteAllText((Join-Path $Work 'events.json'), $text)
}
$script:Incarnation = 0

function Set-Hook {
    param([string] $Name, [string] $Text)
    [IO.File]::WriteAllText((Join-Path $HookFolder $Name), $Text)
}

function Read-Log {
    # The agent keeps the log open.
    $stream = New-Object IO.FileStream $LogFile, 'Open', 'Read', 'ReadWrite, Delete'
    $reader = New-Object IO.StreamReader $stream
    try {
        $reader.ReadToEnd()
    }
    finally {
        $reader.Dispose()
    }
}

function Get-ServiceId {
    (Get-CimInstance -ClassName Win32_Service -Filter "Name='$ServiceName'").ProcessId
}

if ((Get-Service -Name $ServiceName -ErrorAction SilentlyContinue) -or (Test-Path -LiteralPath $DataFolder)) {
    throw 'This machine has an agent, or settings of one. Run the test on another machine.'
}
New-Item -ItemType Directory -Force -Path $Work | Out-Null
if (-not $Python) {
    $Python = & py.exe -3 -c 'import sys; print(sys.executable)'
}
$installation = @{ Server = 'https://127.0.0.1:9'; NoJoinToken = $true; Python = $Python }
if ($Bundle) {
    $installation.Bundle = $Bundle
}
Set-Events @()
$double = Start-Process -PassThru -WindowStyle Hidden -FilePath $Python -ArgumentList @(
    "`"$(Join-Path $PSScriptRoot 'metadata_double.py')`"", "`"$Work`"", $Port
)
try {
    & $Installer @installation
    Add-Content -LiteralPath $SettingsFile -Encoding ascii -Value @(
        "imds_url = `"http://127.0.0.1:$Port`"", 'discover_endpoint = "never"', 'prepare_minutes = "now"', 'hook_timeout_seconds = 60'
    )
    Restart-Service -Name $ServiceName

    # Service
    $about = Get-CimInstance -ClassName Win32_Service -Filter "Name='$ServiceName'"
    Confirm-That 'the service runs as SYSTEM and starts with the machine' {
        $about.State -eq 'Running' -and $about.StartMode -eq 'Auto' -and $about.StartName -eq 'LocalSystem'
    }
    $key = "HKLM:\SYSTEM\CurrentControlSet\Services\$ServiceName"
    Confirm-That 'Windows restarts it after a failure' {
        $stored = Get-ItemProperty -LiteralPath $key
        $stored.FailureActions -and $stored.FailureActionsOnNonCrashFailures -eq 1
    }
    Confirm-That 'Windows waits for hooks at a shutdown' { (Get-ItemProperty -LiteralPath $key).PreshutdownTimeout -eq 120000 } 30

    # Logs
    Confirm-That 'the log file names the start and the machine' {
        $log = Read-Log
        $log -match 'has started' -and $log -match 'This is machine 5ae706df'
    } 60
    Confirm-That 'the event log has the start' {
        Get-WinEvent -MaxEvents 20 -FilterHashtable @{ LogName = 'Application'; ProviderName = $ServiceName } |
            Where-Object { $_.Message -match 'has started' }
    }

    # Permissions
    foreach ($folder in $DataFolder, $HookFolder, (Join-Path $DataFolder 'Agent')) {
        Confirm-That "only SYSTEM and administrators have access to $folder" {
            $rules = (Get-Acl -LiteralPath $folder).GetAccessRules($true, $true, [Security.Principal.SecurityIdentifier])
            -not ($rules | Where-Object { @('S-1-5-18', 'S-1-5-32-544', 'S-1-3-4') -notcontains $_.IdentityReference.Value })
        }
    }

    # Hooks
    Set-Hook '10-script.ps1' '$env:DRYDOCK_EVENT_ID; $given = $input | ConvertFrom-Json; exit [int] ($given.EventType -ne ''Reboot'')'
    Set-Hook '20 command & more.cmd' "@if not `"%DRYDOCK_PHASE%`" == `"prepare`" exit /b 3`r`n@echo done"
    Copy-Item -LiteralPath (Join-Path $env:SystemRoot 'System32\whoami.exe') -Destination (Join-Path $HookFolder '30-program.exe')
    Set-Hook '40-open.cmd' '@exit /b 0'
    icacls.exe (Join-Path $HookFolder '40-open.cmd') /grant '*S-1-5-32-545:M' /q | Out-Null
    Set-Events @('EVENT-1')
    foreach ($hook in '10-script.ps1', '20 command & more.cmd', '30-program.exe') {
        Confirm-That "hook $hook succeeds" { (Read-Log).Contains("prepare $hook succeeded") } 60
    }
    Confirm-That 'a hook that ordinary users can change is refused' { (Read-Log) -match '40-open\.cmd is not run' } 60
    Get-ChildItem -LiteralPath $HookFolder | Remove-Item -Force
    Set-Events @()
    Confirm-That 'the event is forgotten' { $true } 5

    # A stop lets a hook end
    $begun, $ended = (Join-Path $Work 'begun'), (Join-Path $Work 'ended')
    Set-Hook '10-slow.ps1' "Set-Content '$begun' `$PID; Start-Sleep 20; Set-Content '$ended' 1"
    Set-Events @('EVENT-2')
    Confirm-That 'a slow hook begins' { Test-Path -LiteralPath $begun } 60
    Stop-Service -Name $ServiceName
    Confirm-That 'the stop waited for the hook' { (Test-Path -LiteralPath $ended) -and -not (Get-ServiceId) }
    Start-Service -Name $ServiceName
    Confirm-That 'the hook is not repeated' { -not ((Read-Log) -match 'it is run again') } 10

    # A crash
    Remove-Item -LiteralPath $begun, $ended -ErrorAction SilentlyContinue
    Set-Events @('EVENT-3')
    Confirm-That 'the slow hook begins again' { Test-Path -LiteralPath $begun } 60
    $hookId, $before = [int] (Get-Content -LiteralPath $begun), (Get-ServiceId)
    Stop-Process -Id $before -Force
    Confirm-That 'the hook ends with the agent' { -not (Get-Process -Id $hookId -ErrorAction SilentlyContinue) } 5
    Confirm-That 'Windows starts the agent again' { $now = Get-ServiceId; $now -and $now -ne $before } 60
    Confirm-That 'the interrupted hook is run again' { (Test-Path -LiteralPath $ended) } 90

    # Upgrade
    & $Installer @installation
    Confirm-That 'the upgraded service runs' { (Get-Service -Name $ServiceName).Status -eq 'Running' }
    Confirm-That 'one version is installed' { @(Get-ChildItem -LiteralPath (Join-Path $ProgramFolder 'versions')).Count -eq 1 }
}
finally {
    Stop-Process -Id $double.Id -Force -ErrorAction SilentlyContinue
    & $Installer -Remove -Purge
    Confirm-That 'the service is removed' { -not (Get-Service -Name $ServiceName -ErrorAction SilentlyContinue) } 10
    Confirm-That 'program and data are removed' { -not (Test-Path -LiteralPath $DataFolder) -and -not (Test-Path -LiteralPath $ProgramFolder) }
    Remove-Item -LiteralPath $Work -Recurse -Force -ErrorAction SilentlyContinue
}
Write-Host "$script:Failed checks failed."
exit $script:Failed
